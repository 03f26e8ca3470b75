#include "train/exchange/hugging_face/prompt_file.h"

#include <system_error>

#include "data/dataset/prompt_template.h"
#include "data/files/whole_file.h"
#include "data/text/json_reader.h"

namespace ripstop {
namespace {

constexpr size_t kMostTemplateBytes = size_t{1} << 20;
constexpr int64_t kMostPromptBytes = int64_t{8} << 20;  // a byte of the template may take six

}  // namespace

std::string prompt_json(const ExportedPrompt& prompt) {
  const JsonReader::Json json = {{"template", prompt.prompt_template}, {"context", prompt.context}};
  return json.dump(2, ' ', false, JsonReader::Json::error_handler_t::replace) + "\n";
}

std::optional<ExportedPrompt> read_prompt_json(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kPromptFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  const JsonReader reader(path.string(), ExitCode::kInputData);
  const JsonReader::Json json = reader.parse(read_plain_file(path, kMostPromptBytes, ExitCode::kInputData));
  ExportedPrompt prompt{.prompt_template = reader.text(json, "template", kMostTemplateBytes),
                        .context = reader.integer(json, "context", 1, int64_t{1} << 40)};
  try {
    (void)parse_template(prompt.prompt_template);
  } catch (const Error& refused) {
    reader.refuse("{}", refused.what());
  }
  return prompt;
}

}  // namespace ripstop
