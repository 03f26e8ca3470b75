// Text from outside as a stream of examples: one file a source (corpus_xsum, corpus_jsonl, corpus_text,
// corpus_synthetic), all behind read_corpus.
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

/// Where text comes from.
struct CorpusSource {
  SourceKind kind = SourceKind::kAuto;
  std::vector<std::filesystem::path> inputs;  ///< files and directories; none for synthetic
  std::filesystem::path splits;  ///< xsum: the official {train, validation, test: [ids]}, .json or .json.gz;
                                 ///< empty: all is train
  std::string document_field = "document";  ///< jsonl; "text" for source text
  std::string summary_field = "summary";
  double validation_fraction = 0;  ///< of what would be train: chosen by a hash of the document
  int64_t examples = 0;            ///< synthetic: of all splits together
  uint64_t seed = 0;
};

/// One example as it was found. Texts are valid UTF-8 unless `invalid_utf8`.
struct CorpusExample {
  Split split = Split::kTrain;
  std::string id;
  std::string document;
  std::string summary;        ///< empty where the source is text
  std::string file;           ///< for messages; "" for synthetic
  int64_t line = 0;           ///< from 1; 0 where the file is the example
  bool invalid_utf8 = false;  ///< the bytes are no text; document and summary are empty
};

/// How far a reader is, in bytes on disk (examples for synthetic). Set by the reader before each example.
struct CorpusProgress {
  int64_t done = 0, total = 0;
};

/// Facts of a corpus that are known only once it has been read.
struct CorpusCounts {
  int64_t absent_ids = 0;  ///< xsum: ids of the split file that no file has
  int64_t unlisted = 0;    ///< xsum: files that the split file does not name
};

/// Takes one example; it may be moved from.
using ExampleSink = std::function<void(CorpusExample& example)>;

/// The source with `kind` made definite and `inputs` expanded to files in the order they will be read
/// (directories by name). Looks at the first bytes where it must. Throws Error(kUsage) where nothing fits or
/// the kinds of input mix, Error(kInputData) where a path does not exist.
CorpusSource resolve_source(CorpusSource source);

/// Reads the whole corpus of a resolved source in a fixed order, one example at a time, in bounded memory.
/// Throws Error(kInputData), naming file and line, for what is damaged or not of the source's form; and where
/// a file changed while it was read. `sink` may throw.
CorpusCounts read_corpus(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);

// ---- for the readers

CorpusCounts read_xsum(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);
void read_jsonl(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);
void read_text(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);
void read_synthetic(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);

/// The split that a file's name stands for: train*, validation* | val* | dev*, test*; train for any other.
Split split_of_file(const std::filesystem::path& path);
/// Turns train into validation for the share of documents that `validation_fraction` asks for.
Split split_of_document(Split split, std::string_view document, double validation_fraction);
/// "\r\n" becomes "\n", in place.
void normalize_line_ends(std::string& text);

}  // namespace ripstop
