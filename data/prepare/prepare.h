// prepare: makes a data set from a corpus.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"

namespace ripstop {

struct PrepareProgress {
  std::string doing;  ///< "reading text for the tokenizer", "encoding", "encoding compressed text"
  std::string unit;   ///< unit of `done` and `total`: see progress_unit()
  int64_t done = 0, total = 0;
};

struct PrepareOptions {
  CorpusSource source;
  std::filesystem::path output;  ///< must be an empty directory or not exist yet
  /// A .model file, or a directory with one; must be empty if vocab_size is set.
  std::filesystem::path tokenizer;
  int64_t vocab_size = 0;       ///< > 0: number of pieces of a tokenizer to be trained on the train split
  std::string prompt_template;  ///< empty: kDefaultTemplate
  bool strict = false;          ///< if an example cannot be used, throws instead of skipping it
  int64_t threads = 1;
  // The functions below are called on the thread that called prepare().
  std::function<void(const PrepareProgress&)> progress;  ///< called every 256 examples and at the end
  std::function<void(const std::string&)> note;  ///< called with notes for the user before the work begins
  /// Called for every example, and ten times a second while a tokenizer is trained. Once it returns true,
  /// prepare() cleans up and throws PrepareStopped.
  std::function<bool()> stop_requested;
};

/// Exception that prepare() throws if a stop was requested. Then no files are left.
struct PrepareStopped {};

/// Quantiles, maximum and mean of token counts.
struct LengthStatistics {
  int64_t median = 0, p90 = 0, p99 = 0, longest = 0;
  double mean = 0;
};

/// The counts of one split.
struct SplitReport {
  int64_t examples = 0;
  int64_t tokens = 0;  ///< number of tokens stored, with BOS and EOS
  int64_t targets = 0;
  int64_t empty = 0;               ///< skipped: document or summary is empty or only white space
  int64_t invalid_utf8 = 0;        ///< skipped: not valid UTF-8
  int64_t with_nul = 0;            ///< skipped: contains a NUL byte
  int64_t duplicates = 0;          ///< skipped: same document and summary as an earlier example of any split
  int64_t control_characters = 0;  ///< kept: contains control characters besides tab and line ends
  LengthStatistics document_tokens, summary_tokens, example_tokens;
  std::string content_hash;
};

/// The results of prepare(), for messages and for prepare.json.
struct PrepareReport {
  CorpusSource source;  ///< the source, resolved
  std::array<SplitReport, kSplits> splits;
  CorpusCounts counts;
  std::string tokenizer_sha256;
  int64_t vocabulary_size = 0;
  bool tokenizer_trained = false;
  std::string first_skipped;  ///< "FILE:LINE: why" of the first skipped example; empty if there is none

  int64_t skipped() const;  ///< Number of skipped examples of all splits together.
};

/// Makes the directory `options.output` with tokenizer.model, train.h5, validation.h5, test.h5 and
/// prepare.json.
///
/// All or nothing: writes and syncs the files in a PartialDirectory, which is renamed at the end and removed
/// on any failure. Memory is bounded, except for 16 to 32 bytes an example; a tokenizer is trained on a
/// bounded sample. options.threads threads encode the examples; the files depend neither on the number of
/// threads nor on the path of the output. Call it on the main thread only, because it writes HDF5 and trains
/// the tokenizer in a child process.
///
/// Throws Error(kUsage) for options that cannot work.
/// Throws Error(kInputData) for bad input.
/// Throws Error(kStorage) if writing fails.
/// Throws PrepareStopped if a stop was requested.
PrepareReport prepare(const PrepareOptions& options);

}  // namespace ripstop
