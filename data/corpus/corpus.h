#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/conversation.h"
#include "model/core/words.h"

namespace ripstop {

enum class Split { kTrain, kValidation, kTest };
inline constexpr int kSplits = 3;
template <>
inline constexpr std::array<std::string_view, kSplits> kWords<Split> = {"train", "validation", "test"};

/// kAuto: the file names and first lines decide; without files, kSynthetic if `examples` is set. kJsonl:
/// documents with summaries. kText: running text. kMessages: conversations. How to add one: CONTRIBUTING.md.
enum class SourceKind { kAuto, kXsum, kJsonl, kText, kSynthetic, kMessages };
/// Values of --source.
template <>
inline constexpr std::array<std::string_view, 6> kWords<SourceKind> = {"auto", "xsum",      "jsonl",
                                                                       "text", "synthetic", "messages"};

/// A file or folder of the input that is not read.
struct PassedOver {
  std::filesystem::path path;
  std::string why = {};  ///< such as "hidden"; empty: the source does not read files with such names
};

/// The corpus that prepare reads.
struct CorpusSource {
  SourceKind kind = SourceKind::kAuto;
  std::vector<std::filesystem::path> inputs;  ///< files and directories; empty for synthetic
  /// XSum's split file, plain or gzip: a JSON object {"train": [ids], "validation": [ids], "test": [ids]}.
  /// Without it, every article counts as train.
  std::filesystem::path splits;
  /// JSON key of the document. For kText, the default "document" means the key "text".
  std::string document_field = "document";
  std::string summary_field = "summary";
  /// Share of the train documents that split_of_document() moves to validation.
  double validation_fraction = 0;
  int64_t examples = 0;  ///< synthetic: number of examples in all splits together
  uint64_t seed = 0;     ///< synthetic: seed of the random numbers
  /// Unread files and folders of the input. Set by resolve_source().
  std::vector<PassedOver> passed_over;
  /// The inputs as the user gave them, for named_split(). Set by resolve_source().
  std::vector<std::filesystem::path> given;
};

/// A document with its summary, running text, or a conversation, in valid UTF-8.
struct CorpusExample {
  Split split = Split::kTrain;
  std::string id;
  std::string document;       ///< for a conversation: text_of_conversation()
  std::string summary;        ///< empty for running text and conversations
  Conversation conversation;  ///< empty for documents and running text
  bool is_joined = false;     ///< ReadConversation::is_joined
  std::string not_text;       ///< ReadConversation::not_text; if not empty, the conversation is incomplete
  std::string file;           ///< path for error messages; "" for synthetic
  int64_t line = 0;           ///< line number in `file`, from 1; 0 for xsum and synthetic
  bool invalid_utf8 = false;  ///< the example is not UTF-8; then document and summary are empty
};

/// The position of a reader, in the unit of progress_unit(). The reader updates it as it goes on.
struct CorpusProgress {
  int64_t done = 0, total = 0;
};

/// Counts that are known only after the whole corpus has been read.
struct CorpusCounts {
  int64_t absent_ids = 0;  ///< xsum: number of ids in the split file for which there is no article
  int64_t lost_links = 0;  ///< xsum: number of articles that are links to no file of their archive
  int64_t unlisted = 0;    ///< xsum: number of articles that the split file does not list
};

/// The unit of CorpusProgress for a resolved source: "example" for synthetic, "file" for more than 10,000
/// files, else "byte" (on disk).
std::string_view progress_unit(const CorpusSource& source);

/// Receives each example, and may move from it.
using ExampleSink = std::function<void(CorpusExample& example)>;

/// Returns `source` with its kind decided and its inputs expanded to files in the order of reading; files of
/// a directory are sorted by path. Lists unread files in `passed_over`, though not all. Reads the first lines
/// of JSONL files, to tell their kind and to refuse bad files early.
/// Throws Error(kUsage) if there is no file to read, a format is unknown or foreign, kinds differ, a file is
/// given twice, or an option does not fit the kind; Error(kInputData) for a path that does not exist or
/// cannot be read, for UTF-16, and for a bad first line; and the errors of LineInput.
CorpusSource resolve_source(CorpusSource source);

/// Reads the corpus of a resolved source in a fixed order and passes each example to `sink`, which may throw.
/// Uses bounded memory, except for XSum's ids and links. Throws Error(kInputData), with the file, for bad
/// input, and if a file changed meanwhile (checked for up to 10,000 files); Error(kStorage) if a read fails.
CorpusCounts read_corpus(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);

CorpusCounts read_xsum(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);
/// Reads the kinds kJsonl, kText and kMessages.
void read_lines(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);
void read_synthetic(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink);

/// Returns the split of `document`: moves the share `validation_fraction` of the train documents to
/// validation and keeps other splits. The text decides which, whatever else is in the corpus.
Split split_of_document(Split split, std::string_view document, double validation_fraction);

}  // namespace ripstop
