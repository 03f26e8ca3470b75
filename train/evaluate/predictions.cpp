#include "train/evaluate/predictions.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPredictionsFile = "predictions.jsonl";

// The text of the file; empty if there is no such file.
std::string read_if_present(const std::filesystem::path& path) {
  constexpr int64_t kNoLimit = INT64_MAX - 1;
  return std::filesystem::exists(path) ? read_whole_file(path, kNoLimit, ExitCode::kStorage) : "";
}

// Hash of the texts. A score must be of what the model wrote, and people open this file in editors.
std::string hash_of(const Prediction& prediction) {
  StreamHash hash;
  for (const std::string* text :
       {&prediction.id, &prediction.summary, &prediction.reference, &prediction.document}) {
    hash.update(std::to_string(text->size()) + ':');  // so that no text can move into its neighbour
    hash.update(*text);
  }
  return hash.hex();
}

// nullopt if the line is not prediction `example`: torn, edited, or out of order. `checks_hash`: it has one.
std::optional<Prediction> parse_prediction(std::string_view line, int64_t example, bool checks_hash = true) {
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
  if (checks_hash && object.value("hash", Json()) != Json(hash_of(prediction))) return std::nullopt;
  return prediction;
}

// A model may write half a UTF-8 character. `replace` makes U+FFFD of it.
std::string dumped(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string line_of(const Prediction& prediction, int64_t example) {
  Json object{{"example", example},
              {"id", prediction.id},
              {"summary", prediction.summary},
              {"reference", prediction.reference},
              {"document", prediction.document}};
  // The hash is that of the texts as a reader gets them.
  object["hash"] = hash_of(*parse_prediction(dumped(object), example, false));
  return dumped(object) + '\n';
}

// Appends the predictions of `text` up to the first line that is not the next one. Returns the bytes of their
// lines, and whether a whole line follows.
std::pair<size_t, bool> take_predictions(std::string_view text, std::vector<Prediction>& predictions) {
  size_t kept_bytes = 0;
  for (size_t end; (end = text.find('\n', kept_bytes)) != std::string::npos; kept_bytes = end + 1) {
    auto prediction = parse_prediction(text.substr(kept_bytes, end - kept_bytes), std::ssize(predictions));
    // All later lines go, too: line i must hold example i.
    if (!prediction) return {kept_bytes, true};
    predictions.push_back(std::move(*prediction));
  }
  return {kept_bytes, false};
}

}  // namespace

std::vector<Prediction> read_predictions(const std::filesystem::path& directory) {
  std::vector<Prediction> predictions;
  take_predictions(read_if_present(directory / kPredictionsFile), predictions);
  return predictions;
}

PredictionFile::PredictionFile(const std::filesystem::path& directory) : path_(directory / kPredictionsFile) {
  const std::string text = read_if_present(path_);
  const auto [kept_bytes, is_damaged] = take_predictions(text, predictions_);
  if (is_damaged)
    note_ = fmt::format(
        "{}: line {} was changed or removed after it was written: the lines before it are kept, later "
        "summaries "
        "are written again, and a copy of the file is {}",
        path_.string(), count() + 1, copy_aside(posix_io(), path_, "damaged"));
  std::error_code absent;
  const auto links = std::filesystem::hard_link_count(path_, absent);
  if (is_damaged || (!absent && links > 1))
    write_whole_file(path_, std::string_view(text).substr(0, kept_bytes));
  file_.emplace(path_);  // cuts off a torn line
}

void PredictionFile::append(const Prediction& prediction) {
  const std::string line = line_of(prediction, count());
  file_->append(line);
  // Score what the file says, not what the model wrote: a resumed evaluation must give the same scores.
  predictions_.push_back(*parse_prediction(line, count()));
}

}  // namespace ripstop
