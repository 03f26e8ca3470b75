// predictions.jsonl: the summaries that evaluate generated, kept so that an interrupted evaluation can go on.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/file.h"

namespace ripstop {

/// A generated summary beside the summary that a person wrote.
struct Prediction {
  std::string id;         ///< of the example in its source
  std::string summary;    ///< generated
  std::string reference;  ///< written by a person
  std::string document;   ///< the text that both summarize
};

/// The predictions of examples 0, 1, 2, ... of a split, one JSON object a line:
///   {"example": 0, "id": "...", "summary": "...", "reference": "...", "document": "..."}
/// `ripstop rouge --candidate` reads the file.
///
/// settings.json beside it holds everything that the predictions depend on. One process writes. Throws
/// Error(kStorage).
class PredictionFile {
 public:
  /// Opens `directory`/predictions.jsonl, and makes the directory if it is absent. Keeps the lines before the
  /// first one that is torn or out of order. If settings.json holds another text than `settings` (JSON),
  /// keeps no line, because predictions of two settings must not mix.
  PredictionFile(const std::filesystem::path& directory, const std::string& settings);

  /// The file has the examples 0 .. count() - 1.
  int64_t count() const { return static_cast<int64_t>(predictions_.size()); }
  /// Bytes that opening dropped: predictions of other settings, or everything from the first torn line on.
  int64_t dropped_bytes() const { return dropped_bytes_; }
  const std::vector<Prediction>& predictions() const { return predictions_; }

  /// Adds the prediction of example count(). Other processes can read the line when this returns.
  void append(const Prediction& prediction);

 private:
  void keep_whole_lines();
  void remove_all_lines();
  void cut(int64_t bytes);

  std::filesystem::path path_;
  std::vector<Prediction> predictions_;
  int64_t dropped_bytes_ = 0;
  std::optional<AppendFile> file_;
};

}  // namespace ripstop
