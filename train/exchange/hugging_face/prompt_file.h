// ripstop_prompt.json of an export: how documents become prompts.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace ripstop {

inline constexpr const char* kPromptFile = "ripstop_prompt.json";

/// How a model was prompted in its training.
struct ExportedPrompt {
  std::string prompt_template;  ///< with {document}
  int64_t context = 0;          ///< tokens of prompt and summary together, at most
  bool operator==(const ExportedPrompt&) const = default;
};

/// The text of ripstop_prompt.json.
std::string prompt_json(const ExportedPrompt& prompt);

/// Reads `directory`/ripstop_prompt.json; nullopt if there is none, as in models that ripstop has not
/// exported. Throws Error(kInputData) if it is damaged, also if its template is none (parse_template).
std::optional<ExportedPrompt> read_prompt_json(const std::filesystem::path& directory);

}  // namespace ripstop
