#include "train/evaluate/predictions.h"

#include <string_view>
#include <utility>

#include "data/files/directory.h"
#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "data/text/line_input.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

constexpr std::pair<const char*, std::string Prediction::*> kTexts[] = {{"id", &Prediction::id},
                                                                        {"summary", &Prediction::summary},
                                                                        {"reference", &Prediction::reference},
                                                                        {"document", &Prediction::document}};

// The hash that reveals changes that people made in an editor.
std::string hash_of(const Prediction& prediction) {
  StreamHash hash;
  for (const auto& [name, member] : kTexts) {
    const std::string& text = prediction.*member;
    hash.update(std::to_string(text.size()) + ':' + text);  // the size tells where each text ends
  }
  return hash.hex();
}

// Parses prediction `example`; nullopt if the line is torn, edited or out of order.
std::optional<Prediction> parse_prediction(std::string_view line, int64_t example, bool checks_hash = true) {
  using nlohmann::json;  // an ordered object would take quadratic time
  const auto is_shallow = [](int depth, json::parse_event_t, json&) { return depth <= 1; };
  const json object = json::parse(line, is_shallow, /*allow_exceptions=*/false);
  if (!object.is_object() || object.value("example", json()) != json(example)) return std::nullopt;
  Prediction prediction;
  for (const auto& [name, member] : kTexts) {
    const auto field = object.find(name);
    if (field == object.end() || !field->is_string()) return std::nullopt;
    prediction.*member = *field;
  }
  const auto limit = object.find("at_limit");
  if (limit == object.end() || !limit->is_boolean()) return std::nullopt;
  prediction.at_limit = *limit;
  if (checks_hash && object.value("hash", json()) != json(hash_of(prediction))) return std::nullopt;
  return prediction;
}

std::string line_of(const Prediction& prediction, int64_t example) {
  Json object{{"example", example}};
  for (const auto& [name, member] : kTexts) object[name] = prediction.*member;
  object["at_limit"] = prediction.at_limit;
  // Hashes the texts as a reader will get them, because text_of_json changes bytes that are not UTF-8, which
  // a model may generate.
  object["hash"] = hash_of(*parse_prediction(text_of_json(object), example, /*checks_hash=*/false));
  return text_of_json(object) + '\n';
}

// Appends the predictions of `text` up to the first line that is not the next prediction. Returns the bytes
// of these lines, and whether a whole line follows them.
std::pair<size_t, bool> take_predictions(std::string_view text, std::vector<Prediction>& predictions) {
  size_t kept_bytes = 0;
  for (size_t end; (end = text.find('\n', kept_bytes)) != std::string::npos; kept_bytes = end + 1) {
    auto prediction = parse_prediction(text.substr(kept_bytes, end - kept_bytes), std::ssize(predictions));
    // Line i must have example i, so no later line counts.
    if (!prediction) return {kept_bytes, true};
    predictions.push_back(std::move(*prediction));
  }
  return {kept_bytes, false};
}

}  // namespace

std::vector<Prediction> read_predictions(const std::filesystem::path& directory, size_t most) {
  std::vector<Prediction> predictions;
  if (!path_exists(posix_io(), directory / kPredictionsFile)) return predictions;
  LineInput lines(directory / kPredictionsFile);
  for (std::string line; predictions.size() < most && lines.next(line);) {
    auto prediction = parse_prediction(line, std::ssize(predictions));
    if (!prediction) break;
    predictions.push_back(std::move(*prediction));
  }
  return predictions;
}

PredictionFile::PredictionFile(const std::filesystem::path& directory) : path_(directory / kPredictionsFile) {
  constexpr int64_t kMostBytes = int64_t{8} << 30;  // a million documents of 8 KiB
  std::string text;
  if (std::filesystem::exists(path_)) text = read_plain_file(path_, kMostBytes, ExitCode::kStorage);
  const auto [kept_bytes, is_damaged] = take_predictions(text, predictions_);
  if (is_damaged)
    note_ = fmt::format(
        "{}: line {} was changed or removed after it was written: the lines before it are kept, later "
        "summaries are written again, and a copy of the file is {}",
        path_.string(), count() + 1, copy_aside(posix_io(), path_, "damaged"));
  if (is_damaged || has_hard_links(path_))
    write_whole_file(path_, std::string_view(text).substr(0, kept_bytes));
  file_.emplace(path_);  // cuts off a torn line
}

void PredictionFile::append(const Prediction& prediction) {
  const std::string line = line_of(prediction, count());
  file_->append(line);
  // Keeps the file's texts, not the given texts, because a resumed evaluation must give equal scores.
  predictions_.push_back(*parse_prediction(line, count()));
}

}  // namespace ripstop
