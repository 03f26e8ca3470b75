// prepare: makes a data set of a corpus.
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
  std::string unit;   ///< of `done` and `total`: see progress_unit()
  int64_t done = 0, total = 0;
};

struct PrepareOptions {
  CorpusSource source;
  std::filesystem::path output;     ///< must not exist, or must be an empty directory
  std::filesystem::path tokenizer;  ///< a .model file or a directory with one; empty with vocab_size
  int64_t vocab_size = 0;           ///< > 0: trains a tokenizer on the train split
  std::string prompt_template;      ///< empty: kDefaultTemplate
  bool strict = false;              ///< throws instead of skipping an example
  int64_t threads = 1;
  // The calling thread of prepare calls these.
  std::function<void(const PrepareProgress&)> progress;  ///< every 256 examples and at the end
  std::function<void(const std::string&)> note;          ///< with texts to read before the work begins
  /// For every example, and ten times a second while a tokenizer is trained. Once it returns true, prepare
  /// cleans up and throws PrepareStopped.
  std::function<bool()> stop_requested;
};

/// prepare throws it if a stop was requested. No files are left then.
struct PrepareStopped {};

/// Quantiles and mean of token counts.
struct LengthStatistics {
  int64_t median = 0, p90 = 0, p99 = 0, longest = 0;
  double mean = 0;
};

/// The counts of one split.
struct SplitReport {
  int64_t examples = 0;
  int64_t tokens = 0;  ///< stored, including BOS and EOS
  int64_t targets = 0;
  int64_t empty = 0;         ///< skipped: document or summary has nothing but white space
  int64_t invalid_utf8 = 0;  ///< skipped
  int64_t with_nul = 0;      ///< skipped: a NUL byte
  int64_t duplicates = 0;    ///< skipped: document and summary equal those of an earlier example of any split
  int64_t control_characters = 0;  ///< kept: they have control characters besides tab and line ends
  LengthStatistics document_tokens, summary_tokens, example_tokens;
  std::string content_hash;
};

struct PrepareReport {
  CorpusSource source;  ///< resolved
  std::array<SplitReport, kSplits> splits;
  CorpusCounts counts;
  std::string tokenizer_sha256;
  int64_t vocabulary_size = 0;
  bool tokenizer_trained = false;
  std::string first_skipped;  ///< "FILE:LINE: why" of the first skipped example; empty if there is none

  int64_t skipped() const;  ///< of all splits
};

/// Makes the directory `options.output` with tokenizer.model, train.h5, validation.h5, test.h5 and
/// prepare.json.
///
/// All or nothing: writes and syncs the files in a PartialDirectory, which it renames at the end and removes
/// on any failure. Memory is bounded, except for 16 to 32 bytes an example; a tokenizer is trained on a
/// bounded sample. `threads` threads encode; the files do not depend on their number, nor on the path of the
/// output. Main thread only, because it writes HDF5 and trains the tokenizer in a child process. Throws
/// Error(kUsage) for options that cannot work, Error(kInputData) for bad input, Error(kStorage) if it cannot
/// write, PrepareStopped if a stop was requested.
PrepareReport prepare(const PrepareOptions& options);

}  // namespace ripstop
