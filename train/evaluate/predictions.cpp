#include "train/evaluate/predictions.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "data/whole_file.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

// The text of the file; empty if there is no such file.
std::string read_if_present(const std::filesystem::path& path) {
  constexpr int64_t kNoLimit = INT64_MAX - 1;
  return std::filesystem::exists(path) ? read_whole_file(path, kNoLimit, ExitCode::kStorage) : "";
}

// nullopt if the line is not prediction `example`: torn, edited, or out of order.
std::optional<Prediction> parse_prediction(std::string_view line, int64_t example) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || object.value("example", Json()) != Json(example)) return std::nullopt;
  Prediction prediction;
  for (const auto& [name, text] :
       {std::pair{"id", &prediction.id}, std::pair{"summary", &prediction.summary},
        std::pair{"reference", &prediction.reference}, std::pair{"document", &prediction.document}}) {
    const auto field = object.find(name);
    if (field == object.end() || !field->is_string()) return std::nullopt;
    *text = *field;
  }
  return prediction;
}

// A model may write half a UTF-8 character. `replace` makes U+FFFD of it.
std::string line_of(const Prediction& prediction, int64_t example) {
  const Json object{{"example", example},
                    {"id", prediction.id},
                    {"summary", prediction.summary},
                    {"reference", prediction.reference},
                    {"document", prediction.document}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

PredictionFile::PredictionFile(const std::filesystem::path& directory, const std::string& settings)
    : path_(directory / "predictions.jsonl") {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) fail_storage(directory, "make the directory", error.value());
  const std::filesystem::path settings_path = directory / "settings.json";
  const bool same_settings = read_if_present(settings_path) == settings;
  if (same_settings)
    keep_whole_lines();
  else
    remove_all_lines();
  // After the old lines are gone: a crash in between must not leave them under the new settings.
  if (!same_settings) write_whole_file(settings_path, settings);
  file_.emplace(path_);
}

void PredictionFile::keep_whole_lines() {
  const std::string text = read_if_present(path_);
  size_t kept_bytes = 0;
  for (size_t end; (end = text.find('\n', kept_bytes)) != std::string::npos; kept_bytes = end + 1) {
    auto prediction = parse_prediction(std::string_view(text).substr(kept_bytes, end - kept_bytes), count());
    // All later lines go, too: line i must hold example i.
    if (!prediction) break;
    predictions_.push_back(std::move(*prediction));
  }
  dropped_bytes_ = std::ssize(text) - static_cast<int64_t>(kept_bytes);
  if (dropped_bytes_ > 0) cut(static_cast<int64_t>(kept_bytes));
}

void PredictionFile::remove_all_lines() {
  dropped_bytes_ = std::ssize(read_if_present(path_));
  if (dropped_bytes_ > 0) cut(0);
}

void PredictionFile::cut(int64_t bytes) {
  AppendFile(path_).cut(bytes);
}

void PredictionFile::append(const Prediction& prediction) {
  const std::string line = line_of(prediction, count());
  file_->append(line);
  // Score what the file says, not what the model wrote: a resumed evaluation must give the same scores.
  predictions_.push_back(*parse_prediction(line, count()));
}

}  // namespace ripstop
