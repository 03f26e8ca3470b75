// Text from outside as a stream of examples. Each source has a file (corpus_xsum, corpus_jsonl, corpus_text,
// corpus_synthetic); read_corpus calls the right one.
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

/// Names the text that prepare reads.
struct CorpusSource {
  SourceKind kind = SourceKind::kAuto;
  std::vector<std::filesystem::path> inputs;  ///< files and directories; none for synthetic
  std::filesystem::path splits;  ///< xsum: the official {train, validation, test: [ids]}, .json or .json.gz;
                                 ///< empty: all is train
  std::string document_field = "document";  ///< jsonl; "text" for source text
  std::string summary_field = "summary";
  double validation_fraction =
      0;                 ///< share of train that becomes validation, chosen by a hash of the document
  int64_t examples = 0;  ///< synthetic: of all splits together
  uint64_t seed = 0;
  std::vector<std::filesystem::path>
      passed_over;  ///< set by resolve_source: files of the inputs that this kind does not read
};

/// One example as it was found. Texts are valid UTF-8 unless `invalid_utf8`.
struct CorpusExample {
  Split split = Split::kTrain;
  std::string id;
  std::string document;
  std::string summary;        ///< empty if the source is text
  std::string file;           ///< for messages; "" for synthetic
  int64_t line = 0;           ///< from 1; 0 if the whole file is the example
  bool invalid_utf8 = false;  ///< the bytes are not UTF-8; document and summary are empty
};

/// How far a reader is, in units of progress_unit(). The reader sets it before each example.
struct CorpusProgress {
  int64_t done = 0, total = 0;
};

/// Facts of a corpus that are known only after it has been read.
struct CorpusCounts {
  int64_t absent_ids = 0;  ///< xsum: ids of the split file that no file has
  int64_t unlisted = 0;    ///< xsum: files that the split file does not name
};

/// The unit of CorpusProgress for a resolved source: "byte" of the files as they lie on disk, compressed or
/// not; "file" if there are so many that to ask each for its size takes minutes; "example" for synthetic.
std::string_view progress_unit(const CorpusSource& source);

/// Takes one example; it may be moved from.
using ExampleSink = std::function<void(CorpusExample& example)>;

/// Returns the source with a definite `kind`, and with `inputs` expanded to files in the order of reading
/// (the files of a directory by name); what it passes over is in `passed_over`, but for hidden files and
/// those of Hugging Face's save_to_disk without examples. Reads the first line of JSONL files, to tell pairs
/// from running text and to refuse a line without the fields before hours of other files. Throws
/// Error(kUsage) if nothing fits, if the inputs are of several kinds or if an option is not for this kind,
/// Error(kInputData) if a path does not exist or a first line does not fit.
CorpusSource resolve_source(CorpusSource source);

/// Reads the whole corpus of a resolved source in a fixed order, one example at a time, in bounded memory.
/// Throws Error(kInputData) with file and line if the input is damaged or not of the source's form, and if a
/// file changed while it was read. `sink` may throw.
CorpusCounts read_corpus(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);

// ---- for the readers

CorpusCounts read_xsum(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);
void read_jsonl(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);
void read_text(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);
void read_synthetic(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);

/// Moves the share `validation_fraction` of the train documents to validation; returns the split of this one.
/// Depends on the document's text alone, so an example stays in its split if the corpus changes around it.
Split split_of_document(Split split, std::string_view document, double validation_fraction);
/// Replaces "\r\n" by "\n", in place.
void normalize_line_ends(std::string& text);

}  // namespace ripstop
