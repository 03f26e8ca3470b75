// predictions.jsonl: the summaries that evaluate generated, kept so that an interrupted evaluation can go on.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/files/file.h"

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
/// One process writes. Throws Error(kStorage).
class PredictionFile {
 public:
  /// Opens `directory`/predictions.jsonl; makes it if it is absent. Keeps the lines before the first one that
  /// is torn, changed or out of order. A torn last line, as a kill leaves it, is cut off. If whole lines go,
  /// a copy of the file stays as predictions.jsonl.damaged, and note() says so. A file that has other hard
  /// links gets replaced, because lines that are appended would show there. The caller knows that the lines
  /// are of the same settings: predictions of two settings must not mix (claim_evaluation_directory).
  explicit PredictionFile(const std::filesystem::path& directory);

  /// The file has the examples 0 .. count() - 1.
  int64_t count() const { return static_cast<int64_t>(predictions_.size()); }
  /// For people: the lines that opening dropped, and where their copy is; "" if there were none.
  const std::string& note() const { return note_; }
  const std::vector<Prediction>& predictions() const { return predictions_; }

  /// Adds the prediction of example count(). Other processes can read the line when this returns.
  void append(const Prediction& prediction);

 private:
  std::filesystem::path path_;
  std::vector<Prediction> predictions_;
  std::string note_;
  std::optional<AppendFile> file_;
};

/// The predictions that PredictionFile would keep, without a change of the file; none if there is no file.
std::vector<Prediction> read_predictions(const std::filesystem::path& directory);

}  // namespace ripstop
