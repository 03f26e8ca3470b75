// predictions.jsonl: the generated summaries of an evaluation. An interrupted evaluation goes on from them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/files/file.h"

namespace ripstop {

/// A generated summary and its reference.
struct Prediction {
  std::string id;         ///< of the example in its source
  std::string summary;    ///< generated
  std::string reference;  ///< written by a person
  std::string document;   ///< the text that both summarize
};

/// A file with the predictions of examples 0, 1, 2, ... of a split, one JSON object a line:
///   {"example": 0, "id": "...", "summary": "...", "reference": "...", "document": "..."}
/// `ripstop rouge --candidate` reads the file.
///
/// One process writes. Throws Error(kStorage).
class PredictionFile {
 public:
  /// Opens `directory`/predictions.jsonl; makes it if it is absent. Removes lines from the first one on that
  /// is torn, changed or out of order. If that removes whole lines, keeps a copy of the file as
  /// predictions.jsonl.damaged, and note() says so. Replaces a file that has other hard links, in which
  /// appended lines would show. The caller has checked that the lines have the same settings
  /// (claim_evaluation_directory).
  explicit PredictionFile(const std::filesystem::path& directory);

  /// The file has the examples 0 .. count() - 1.
  int64_t count() const { return static_cast<int64_t>(predictions_.size()); }
  /// For people: the whole lines that opening removed, and the name of the copy; "" if none.
  const std::string& note() const { return note_; }
  const std::vector<Prediction>& predictions() const { return predictions_; }

  /// Appends the prediction of example count(). Other processes can read the line when this returns.
  void append(const Prediction& prediction);

 private:
  std::filesystem::path path_;
  std::vector<Prediction> predictions_;
  std::string note_;
  std::optional<AppendFile> file_;
};

/// The predictions that PredictionFile would keep. Does not change the file; returns none without a file.
std::vector<Prediction> read_predictions(const std::filesystem::path& directory);

}  // namespace ripstop
