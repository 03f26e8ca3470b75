// Corpora as streams of examples. corpus_xsum.cpp, corpus_lines.cpp and corpus_synthetic.cpp have the
// readers, read_corpus calls the right one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

enum class Split { kTrain, kValidation, kTest };
inline constexpr int kSplits = 3;
/// "train", "validation", "test".
std::string_view to_string(Split split);

enum class SourceKind { kAuto, kXsum, kJsonl, kText, kSynthetic };
/// "auto", "xsum", "jsonl", "text", "synthetic".
std::string_view to_string(SourceKind kind);

/// The corpus that prepare reads.
struct CorpusSource {
  SourceKind kind = SourceKind::kAuto;
  std::vector<std::filesystem::path> inputs;  ///< files and directories; none for synthetic
  /// xsum: the official {train, validation, test: [ids]}, .json or .json.gz; empty: every article is train
  std::filesystem::path splits;
  std::string document_field = "document";  ///< of JSON lines; for kText the default means "text"
  std::string summary_field = "summary";    ///< of JSON lines
  double validation_fraction = 0;           ///< see split_of_document
  int64_t examples = 0;                     ///< synthetic: of all splits together
  uint64_t seed = 0;                        ///< synthetic
  /// Set by resolve_source: files of the inputs that this kind does not read.
  std::vector<std::filesystem::path> passed_over;
};

/// One example of a corpus. Its id, document and summary are valid UTF-8.
struct CorpusExample {
  Split split = Split::kTrain;
  std::string id;
  std::string document;
  std::string summary;        ///< empty in running text
  std::string file;           ///< for messages; "" for synthetic
  int64_t line = 0;           ///< from 1; 0 if the whole file is the example
  bool invalid_utf8 = false;  ///< the source is not UTF-8; document and summary are empty
};

/// The position of a reader in units of progress_unit(). The reader sets it before each example.
struct CorpusProgress {
  int64_t done = 0, total = 0;
};

/// Counts that are known after a corpus has been read.
struct CorpusCounts {
  int64_t absent_ids = 0;  ///< xsum: ids of the split file that no file has
  int64_t unlisted = 0;    ///< xsum: files that the split file does not name
};

/// The unit of CorpusProgress for a resolved source: "byte" (on disk, perhaps compressed), "example" for
/// synthetic, or "file" if there are so many files that asking for their sizes takes minutes.
std::string_view progress_unit(const CorpusSource& source);

/// Receives each example; may move from it.
using ExampleSink = std::function<void(CorpusExample& example)>;

/// Returns the source with its `kind` decided and its `inputs` expanded to files in the order of reading
/// (sorted by name in a directory). Lists other files in `passed_over`, except hidden ones and the metadata
/// of Hugging Face's save_to_disk. Reads the first line of JSONL files to tell pairs from running text and to
/// refuse bad ones early. Throws Error(kUsage) if there is no file to read, if the inputs are of several
/// kinds or if an option is not for this kind; Error(kInputData) if a path does not exist or a first line is
/// bad.
CorpusSource resolve_source(CorpusSource source);

/// Reads the whole corpus of a resolved source in a fixed order, one example at a time, in bounded memory.
/// Throws Error(kInputData) with file and line if the input is damaged or not in the form of its kind, and if
/// a file changed while it was read. `sink` may throw.
CorpusCounts read_corpus(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);

// ---- the readers, and functions for them

CorpusCounts read_xsum(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);
/// Reads the kinds kJsonl and kText.
void read_lines(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);
void read_synthetic(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);

/// Moves the share `validation_fraction` of the train documents to validation. Returns the new split of this
/// document. Depends on its text alone, so it stays in its split if the rest of the corpus changes.
Split split_of_document(Split split, std::string_view document, double validation_fraction);
/// Replaces "\r\n" by "\n" in `text`.
void normalize_line_ends(std::string& text);

}  // namespace ripstop
