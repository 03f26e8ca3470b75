#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/files/file.h"

namespace ripstop {

/// Files of an evaluation: the summaries, the scores of the split, and those of each summary.
inline constexpr const char* kPredictionsFile = "predictions.jsonl";
inline constexpr const char* kScoresFile = "scores.json";
inline constexpr const char* kScoreRowsFile = "scores.jsonl";

struct Prediction {
  std::string id;         ///< id of the example in its source
  std::string summary;    ///< the generated summary
  std::string reference;  ///< the summary that a person wrote
  std::string document;   ///< the text that `summary` and `reference` summarize
  bool at_limit = false;  ///< the summary ended without an end token (WrittenText::at_limit)
};

/// A file with the predictions of examples 0, 1, 2, ... of a split, one JSON object a line:
///   {"example": 0, "id": "...", "summary": "...", "reference": "...", "document": "...", "at_limit": false,
///    "hash": "..."}
/// `ripstop rouge --candidate` reads the file; an interrupted evaluation goes on from it. No other process
/// may write it. Constructor and append() throw Error(kStorage).
class PredictionFile {
 public:
  /// Opens `directory`/predictions.jsonl; makes it if it is absent. Removes the first line that is torn,
  /// changed or out of order, and all later lines. If a removed line has a line end, keeps a copy of the file
  /// as predictions.jsonl.damaged (copy_aside). If the file has other hard links, replaces it by a copy, so
  /// that appended lines do not appear under the other names. Make an EvaluationClaim first.
  explicit PredictionFile(const std::filesystem::path& directory);

  /// The file has the predictions of examples 0 .. count() - 1.
  int64_t count() const { return static_cast<int64_t>(predictions_.size()); }
  /// A note for people on the lines that the constructor removed, with the name of the copy; "" without a
  /// copy.
  const std::string& note() const { return note_; }
  const std::vector<Prediction>& predictions() const { return predictions_; }

  /// Appends the prediction of example count(). On return other processes can read the line.
  void append(const Prediction& prediction);

 private:
  std::filesystem::path path_;
  std::vector<Prediction> predictions_;
  std::string note_;
  std::optional<AppendFile> file_;
};

/// The first `most` predictions that PredictionFile would keep; the last line may lack its line end. Empty if
/// the file is absent. Does not change the file.
std::vector<Prediction> read_predictions(const std::filesystem::path& directory, size_t most = SIZE_MAX);

}  // namespace ripstop
