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
  std::string id;         ///< id of the example in its source
  std::string summary;    ///< the generated summary
  std::string reference;  ///< the summary that a person wrote
  std::string document;   ///< the text that both summarize
};

/// A file with the predictions of examples 0, 1, 2, ... of a split, one JSON object a line:
///   {"example": 0, "id": "...", "summary": "...", "reference": "...", "document": "..."}
/// `ripstop rouge --candidate` reads the file.
///
/// Requires that no other process writes the file. The constructor and append() throw Error(kStorage).
class PredictionFile {
 public:
  /// Opens `directory`/predictions.jsonl; makes it if it is absent. Removes the first line that is torn,
  /// changed or out of order, and all lines after it. If whole lines are removed, keeps a copy of the file as
  /// predictions.jsonl.damaged, and note() says so. If the file has other hard links, replaces it by a copy,
  /// so that appended lines do not appear under the other names. Requires that claim_evaluation_directory has
  /// found the settings of the lines equal.
  explicit PredictionFile(const std::filesystem::path& directory);

  /// Number of predictions in the file: examples 0 .. count() - 1.
  int64_t count() const { return static_cast<int64_t>(predictions_.size()); }
  /// A text for people about the whole lines that the constructor removed, with the name of the copy; "" if
  /// it removed none.
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

/// The predictions that PredictionFile would keep. Does not change the file; returns no predictions if the
/// file is absent.
std::vector<Prediction> read_predictions(const std::filesystem::path& directory);

}  // namespace ripstop
