#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>

#include "data/corpus/corpus.h"
#include "data/tokenizer/tokenizer_files.h"
#include "model/core/words.h"

namespace ripstop {

struct PrepareProgress {
  std::string doing;  ///< text for people, such as "encoding"
  std::string unit;   ///< progress_unit() of the source
  int64_t done = 0, total = 0;
};

struct PrepareOptions {
  CorpusSource source;
  std::filesystem::path output;  ///< must be an empty directory or not exist yet
  /// A .model file, a tokenizer.json, or a directory with one; empty if vocab_size is set.
  std::filesystem::path tokenizer;
  TokenizerChoice choice;
  int64_t vocab_size = 0;       ///< > 0: size of a tokenizer to train on the train split
  std::string prompt_template;  ///< empty: kDefaultTemplate, with a chat template kDefaultChatPrompt
  std::string chat_template;    ///< name of a chat template, or "auto" for the tokenizer's own; "": none
  std::string chat_date;        ///< the date that the chat template writes; empty: kDefaultChatDate
  bool strict = false;          ///< throws instead of skipping an example
  int64_t threads = 1;
  // Called on the thread that called prepare():
  std::function<void(const PrepareProgress&)> progress;  ///< every 256 examples and after each reading
  std::function<void(const std::string&)> note;          ///< takes each note for the user
  /// Called for every example, and ten times a second while a tokenizer is trained. Once it returns true,
  /// prepare() cleans up and throws PrepareStopped.
  std::function<bool()> stop_requested;
};

/// Thrown if a stop was requested. Then no files are left.
struct PrepareStopped {};

struct LengthStatistics {
  int64_t median = 0, p90 = 0, p99 = 0, longest = 0;
  double mean = 0;
};

/// Why an example is skipped.
enum class Skip {
  kEmpty,        ///< document or summary has only white space, or the example fewer than 2 tokens
  kDuplicate,    ///< same texts as an earlier example of any split
  kInvalidUtf8,  ///< not valid UTF-8
  kNul,          ///< contains a NUL byte
  kLongWord,     ///< LongWordError of the tokenizer
  kNotText,      ///< a conversation with tools or parts other than text
  kNoAnswer,     ///< a conversation without an answer that counts
  kRefused       ///< ConversationError of the chat template
};
template <>
inline constexpr std::array<std::string_view, 8> kWords<Skip> = {
    "empty", "duplicate", "invalid_utf8", "with_nul", "long_words", "not_text", "no_answer", "refused"};
/// A count for each Skip.
struct SkipCounts : std::array<int64_t, kWords<Skip>.size()> {
  int64_t of(Skip why) const { return at(static_cast<size_t>(why)); }
  int64_t total() const { return std::accumulate(begin(), end(), int64_t{0}); }
};

/// Counts of one split.
struct SplitReport {
  int64_t examples = 0;
  int64_t tokens = 0;  ///< including begin and end tokens
  int64_t targets = 0;
  SkipCounts skipped = {};
  int64_t control_characters = 0;  ///< kept examples with control characters besides tab and line ends
  LengthStatistics document_tokens, summary_tokens, example_tokens;
  std::string content_hash;
};

/// Results of prepare().
struct PrepareReport {
  CorpusSource source;  ///< resolved
  std::array<SplitReport, kSplits> splits;
  CorpusCounts counts;
  std::string tokenizer_sha256;
  int64_t vocabulary_size = 0;
  bool tokenizer_trained = false;
  std::string first_skipped;  ///< "FILE:LINE: why"; empty if no example was skipped

  SkipCounts skipped() const;  ///< over all splits
};

/// Makes `options.output` with the tokenizer's files, train.h5, validation.h5, test.h5 and prepare.json.
///
/// Writes and syncs the files in a PartialDirectory, which is renamed at the end and removed on any failure.
/// Memory is bounded, except for the list of inputs and a few dozen bytes an example. The files depend
/// neither on the number of threads nor on the path of the output. Main thread only, because of HDF5 and the
/// child process that trains the tokenizer.
///
/// Throws Error(kUsage) for options that cannot work, Error(kInputData) for bad input, Error(kStorage) if a
/// file cannot be read or written, the errors of run_in_child(), and PrepareStopped.
PrepareReport prepare(const PrepareOptions& options);

}  // namespace ripstop
