#include "data/dataset/batch_loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "data/dataset/sequence_reader.h"
#include "model/core/error.h"
#include "model/core/rounding.h"

namespace ripstop {
namespace {

/// Checks `options` before the initializers of the loader's members use them.
const BatchLoaderOptions& checked(const BatchLoaderOptions& options) {
  RIPSTOP_CHECK(options.sequence_length >= 2, "sequence_length is {}", options.sequence_length);
  RIPSTOP_CHECK(options.global_batch_sequences >= 1 && options.micro_batch_sequences >= 1,
                "batches of {} and {} sequences", options.global_batch_sequences,
                options.micro_batch_sequences);
  RIPSTOP_CHECK(options.data_rank >= 0 && options.data_rank < options.data_ranks, "data rank {} of {}",
                options.data_rank, options.data_ranks);
  // document_offset stores row numbers as int32.
  RIPSTOP_CHECK(options.micro_batch_sequences <= INT32_MAX / options.sequence_length, "{} x {} rows",
                options.micro_batch_sequences, options.sequence_length);
  return options;
}

/// Number of batches that each rank reads in a step. Every batch has collectives, so all ranks read equally
/// many; some batches may be empty.
int64_t count_batches(const BatchLoaderOptions& options) {
  return divide_up(divide_up(options.global_batch_sequences, options.data_ranks),
                   options.micro_batch_sequences);
}

/// Every rank computes the same plan, which is cheaper than sending it.
PackPlan plan_epoch(const SequenceReader& reader, const BatchLoaderOptions& options, int64_t epoch) {
  return {reader.rows(),
          {options.sequence_length, options.shuffle_seed, epoch, options.pack, options.shuffle,
           options.open_sequences}};
}

/// Decides which sequences belong to each step. All ranks decide the same.
class StepPlanner {
 public:
  StepPlanner(const SequenceReader& reader, const BatchLoaderOptions& options, DataCursor start)
      : reader_(reader), options_(options), plan_(plan_epoch(reader, options, start.epoch)), at_(start) {}

  /// Number of sequences in an epoch, by the current plan.
  int64_t sequences_per_epoch() const { return plan_.sequences(); }
  bool is_over() const { return options_.epochs > 0 && at_.epoch >= options_.epochs; }

  /// Advances the cursor by one step and fills in `step`. Returns the items of each sequence in the step.
  std::vector<std::vector<PackItem>> take_step(LoaderStep& step);

 private:
  const SequenceReader& reader_;
  const BatchLoaderOptions options_;
  PackPlan plan_;
  DataCursor at_;
};

std::vector<std::vector<PackItem>> StepPlanner::take_step(LoaderStep& step) {
  std::vector<std::vector<PackItem>> sequences;
  step.begin = at_;
  while (static_cast<int64_t>(sequences.size()) < options_.global_batch_sequences && !is_over()) {
    // A plan takes about 24 bytes an example, so keep only one.
    if (plan_.epoch() != at_.epoch) plan_ = plan_epoch(reader_, options_, at_.epoch);
    sequences.push_back(plan_.sequence(at_.sequence));
    for (const PackItem& item : sequences.back()) {
      ++step.examples;
      step.rows += item.rows;
      step.target_count += reader_.target_count(item);
    }
    if (++at_.sequence == plan_.sequences()) at_ = {at_.epoch + 1, 0};
  }
  step.end = at_;
  step.sequences = static_cast<int64_t>(sequences.size());
  // If the step ended an epoch, at_ is the start of the next epoch, whose plan is not made yet.
  const bool same_plan = plan_.epoch() == at_.epoch;
  step.epoch = static_cast<double>(at_.epoch) +
               (same_plan ? static_cast<double>(at_.sequence) / static_cast<double>(plan_.sequences()) : 0.0);
  return sequences;
}

/// A batch, with the LoaderStep if it is the first of its step. An empty entry marks the end of the run.
struct QueueEntry {
  std::optional<LoaderStep> step;
  std::optional<PackedBatch> batch;
};

/// Carries batches from the reading thread to the consumer. Holds at most four, so reading ahead is bounded.
class ReadAheadQueue {
 public:
  /// Waits for room. Returns false if the queue was stopped.
  bool push(QueueEntry entry) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || entries_.size() < kMostEntries; });
    if (stopped_) return false;
    entries_.push_back(std::move(entry));
    changed_.notify_all();
    return true;
  }
  /// Makes pop() throw `failure` once the queue is empty.
  void push_failure(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
    changed_.notify_all();
  }
  QueueEntry pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !entries_.empty() || failure_; });
    if (entries_.empty()) std::rethrow_exception(failure_);
    QueueEntry entry = std::move(entries_.front());
    entries_.pop_front();
    changed_.notify_all();
    return entry;
  }
  /// Makes push() return false, which ends the reading thread.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  static constexpr size_t kMostEntries = 4;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<QueueEntry> entries_;
  std::exception_ptr failure_;
  bool stopped_ = false;
};

/// Calls body(items) for each sequence of batch `number` of `data_rank`, with no items for an empty sequence.
/// `sequences`: all sequences of the step, which the data ranks take in turn.
template <class Body>
void for_sequences(const BatchLoaderOptions& options, const std::vector<std::vector<PackItem>>& sequences,
                   int64_t number, int64_t data_rank, Body body) {
  const std::vector<PackItem> none;
  for (int64_t i = 0; i < options.micro_batch_sequences; ++i) {
    const int64_t slot = (number * options.micro_batch_sequences + i) * options.data_ranks + data_rank;
    body(slot < std::ssize(sequences) ? sequences[static_cast<size_t>(slot)] : none);
  }
}

PackedBatch read_batch(const SequenceReader& reader, const BatchLoaderOptions& options,
                       const std::vector<std::vector<PackItem>>& sequences, int64_t number) {
  PackedBatch batch;
  batch.sequence_count = options.micro_batch_sequences;
  batch.sequence_length = options.sequence_length;
  batch.document_offset.push_back(0);
  for (auto* values : {&batch.token, &batch.target, &batch.position}) {
    values->reserve(static_cast<size_t>(batch.rows()));
  }
  for_sequences(options, sequences, number, options.data_rank, [&](const std::vector<PackItem>& items) {
    if (items.empty())
      reader.append_empty_sequence(batch);
    else
      reader.append_sequence(items, batch);
  });
  return batch;
}

/// Pushes the batches of one step. Returns false at the end of the run, or if the queue was stopped.
bool read_step(const SequenceReader& reader, const BatchLoaderOptions& options, StepPlanner& planner,
               ReadAheadQueue& queue) {
  if (planner.is_over()) {
    queue.push({});
    return false;
  }
  LoaderStep step;
  const auto sequences = planner.take_step(step);
  for (int64_t k = 0; k < count_batches(options); ++k) {
    QueueEntry entry;
    if (k == 0) entry.step = step;
    entry.batch = read_batch(reader, options, sequences, k);
    if (!queue.push(std::move(entry))) return false;
  }
  return true;
}

}  // namespace

EpochSequences count_epoch_sequences(const TokenDataset& dataset, const BatchLoaderOptions& options,
                                     int64_t epoch) {
  const SequenceReader reader(dataset, options.sequence_length, options.loss_on, options.examples);
  const PackPlan plan = plan_epoch(reader, options, epoch);
  return {plan.sequences(), plan.hash()};
}

std::map<DocumentSizes, int64_t> coming_documents(const TokenDataset& dataset,
                                                  const BatchLoaderOptions& options, DataCursor start,
                                                  int64_t steps) {
  const SequenceReader reader(dataset, options.sequence_length, options.loss_on, options.examples);
  StepPlanner planner(reader, checked(options), start);
  std::map<DocumentSizes, int64_t> batches;
  for (int64_t step = 0; step < steps && !planner.is_over(); ++step) {
    LoaderStep taken;
    const auto sequences = planner.take_step(taken);
    for (int64_t rank = 0; rank < options.data_ranks; ++rank)
      for (int64_t k = 0; k < count_batches(options); ++k) {
        DocumentSizes of_batch;
        for_sequences(options, sequences, k, rank, [&](const std::vector<PackItem>& items) {
          const DocumentSizes sizes = reader.document_sizes(items);
          of_batch.count += sizes.count;
          of_batch.longest = std::max(of_batch.longest, sizes.longest);
        });
        ++batches[of_batch];
      }
  }
  return batches;
}

struct BatchLoader::State {
  BatchLoaderOptions options;
  SequenceReader reader;
  StepPlanner planner;  // used only by the reading thread
  int64_t sequences_per_epoch;
  ReadAheadQueue queue;

  // Used only by the consumer:
  std::optional<PackedBatch> current;
  int64_t batches_left = 0;
  bool at_end = false;

  std::thread thread;

  State(const TokenDataset& dataset, const BatchLoaderOptions& o, DataCursor start)
      : options(checked(o)),
        reader(dataset, o.sequence_length, o.loss_on, o.examples),
        planner(reader, o, start),
        sequences_per_epoch(planner.sequences_per_epoch()) {}
};

BatchLoader::BatchLoader(const TokenDataset& dataset, const BatchLoaderOptions& options, DataCursor start)
    : state_(std::make_unique<State>(dataset, options, start)) {
  State& s = *state_;
  if (start.epoch < 0 || start.sequence < 0 || start.sequence >= s.sequences_per_epoch) {
    fail(ExitCode::kInputData, "{}: epoch {} has {} sequences, the run wants to go on at sequence {}",
         dataset.path().string(), start.epoch, s.sequences_per_epoch, start.sequence);
  }
  s.thread = std::thread([&s] {
    try {
      while (read_step(s.reader, s.options, s.planner, s.queue)) {
      }
    } catch (...) {
      s.queue.push_failure(std::current_exception());
    }
  });
}

BatchLoader::~BatchLoader() {
  state_->queue.stop();
  if (state_->thread.joinable()) state_->thread.join();
}

int64_t BatchLoader::batches_per_step() const {
  return count_batches(state_->options);
}
int64_t BatchLoader::sequences_per_epoch() const {
  return state_->sequences_per_epoch;
}

std::optional<LoaderStep> BatchLoader::next_step() {
  State& s = *state_;
  RIPSTOP_CHECK(s.batches_left == 0, "{} batches of the step before are unused", s.batches_left);
  if (s.at_end) return std::nullopt;
  QueueEntry entry = s.queue.pop();
  if (!entry.step) {
    s.at_end = true;
    return std::nullopt;
  }
  // An entry with a step also has the first batch of the step.
  s.current = std::move(entry.batch);
  s.batches_left = batches_per_step();
  return entry.step;
}

const PackedBatch& BatchLoader::next_batch() {
  State& s = *state_;
  RIPSTOP_CHECK(s.batches_left > 0, "next_batch() without a step");
  const bool first = s.batches_left == batches_per_step();
  if (!first) s.current = s.queue.pop().batch;
  --s.batches_left;
  return *s.current;
}

}  // namespace ripstop
