#include "data/dataset/batch_loader.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
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

/// Batches of each rank in a step. Every batch has collectives, so all ranks read equally many.
int64_t count_batches(const BatchLoaderOptions& options) {
  return divide_up(divide_up(options.global_batch_sequences, options.data_ranks),
                   options.micro_batch_sequences);
}

/// Every rank computes the same plan, which is cheaper than sending it.
PackPlan plan_epoch(const SequenceReader& reader, const BatchLoaderOptions& options, int64_t epoch,
                    size_t set) {
  return {reader.rows(),
          {options.sequence_length, seed_of_set(options.shuffle_seed, set), epoch, options.pack,
           options.shuffle, options.open_sequences}};
}

std::vector<SequenceReader> readers_of(DataSets datasets, const BatchLoaderOptions& options) {
  std::vector<SequenceReader> readers;
  for (const TokenDataset& dataset : datasets)
    readers.emplace_back(dataset, options.sequence_length, options.loss_on, options.examples);
  return readers;
}

/// `shares` times 2^50 as integers, so that draws do not depend on the rounding of a sum of shares.
std::vector<int64_t> chances_of(const std::vector<double>& shares) {
  std::vector<int64_t> chances;
  for (const double share : shares) chances.push_back(std::llround(std::ldexp(share, 50)));
  return chances;
}

/// A sequence of a step: items of data set number `set`.
struct PlannedSequence {
  size_t set = 0;
  std::vector<PackItem> items = {};  ///< none: an empty sequence
};

/// Decides which sequences belong to each step. All ranks decide the same.
class StepPlanner {
 public:
  StepPlanner(std::span<const SequenceReader> readers, const BatchLoaderOptions& options,
              const DataCursor& start);

  int64_t sequences_per_epoch() const {
    return std::transform_reduce(plans_.begin(), plans_.end(), int64_t{0}, std::plus<>(),
                                 [](const PackPlan& plan) { return plan.sequences(); });
  }
  bool is_over() const { return options_.epochs > 0 && at_.epoch >= options_.epochs; }

  /// Advances the cursor by one step and fills in `step`. Returns the sequences of the step.
  std::vector<PlannedSequence> take_step(LoaderStep& step);

 private:
  void move_to_epoch();
  void begin_epoch();
  void require_inside(size_t set, const SetCursor& at, int64_t sequences) const;
  bool has_weights() const { return !chances_.empty(); }
  size_t next_set() const;
  PlannedSequence take_sequence();
  DataCursor cursor() const;

  std::span<const SequenceReader> readers_;
  const BatchLoaderOptions options_;
  std::vector<int64_t> chances_;  ///< chance of each set, if there are several with weights
  std::vector<PackPlan> plans_;   ///< a plan takes up to 24 bytes an item, so each set has only one
  std::vector<SetCursor> set_at_;
  std::vector<int32_t> order_;  ///< the set of each sequence in an epoch of several sets without weights
  DataCursor at_;               ///< cursor without the positions in the sets
};

StepPlanner::StepPlanner(std::span<const SequenceReader> readers, const BatchLoaderOptions& options,
                         const DataCursor& start)
    : readers_(readers), options_(options), set_at_(start.sets), at_{start.epoch, start.sequence} {
  if (readers.size() > 1) chances_ = chances_of(options.shares);
  if (set_at_.empty()) set_at_.resize(readers.size());
  if (set_at_.size() != readers.size())
    fail(ExitCode::kInputData, "the run wants to go on in {} data sets, and there are {}", set_at_.size(),
         readers.size());
  if (!has_weights()) move_to_epoch();
  for (size_t set = 0; set < readers.size(); ++set) {
    plans_.push_back(plan_epoch(readers[set], options, set_at_[set].epoch, set));
    require_inside(set, set_at_[set], plans_[set].sequences());
  }
  if (has_weights()) return;
  require_inside(0, {at_.epoch, at_.sequence}, sequences_per_epoch());
  begin_epoch();
}

void StepPlanner::require_inside(size_t set, const SetCursor& at, int64_t sequences) const {
  if (at.epoch < 0 || at.sequence < 0 || at.sequence >= sequences)
    fail(ExitCode::kInputData, "{}: epoch {} has {} sequences, the run wants to go on at sequence {}",
         readers_[set].dataset().path().string(), at.epoch, sequences, at.sequence);
}

/// Without weights: moves all sets to the beginning of the cursor's epoch.
void StepPlanner::move_to_epoch() {
  for (SetCursor& at : set_at_) at = {at_.epoch, 0, at.tokens};
}

/// Without weights: plans the epoch of the cursor, and finds the positions of the sets in it.
void StepPlanner::begin_epoch() {
  std::vector<int64_t> counts;
  for (size_t set = 0; set < plans_.size(); ++set) {
    if (plans_[set].epoch() != at_.epoch) plans_[set] = plan_epoch(readers_[set], options_, at_.epoch, set);
    counts.push_back(plans_[set].sequences());
  }
  if (plans_.size() > 1) order_ = mixed_sets(counts, options_.shuffle_seed, at_.epoch, options_.shuffle);
  if (order_.empty()) set_at_[0].sequence = at_.sequence;
  for (int64_t i = 0; i < at_.sequence && !order_.empty(); ++i)
    ++set_at_[static_cast<size_t>(order_[static_cast<size_t>(i)])].sequence;
}

size_t StepPlanner::next_set() const {
  if (has_weights()) return draw_set(chances_, options_.shuffle_seed, at_.sequence);
  return order_.empty() ? 0 : static_cast<size_t>(order_[static_cast<size_t>(at_.sequence)]);
}

PlannedSequence StepPlanner::take_sequence() {
  // Plan an epoch only when its first sequence is taken: the run may end before.
  if (!has_weights() && plans_[0].epoch() != at_.epoch) begin_epoch();
  const size_t set = next_set();
  SetCursor& at = set_at_[set];
  if (plans_[set].epoch() != at.epoch) plans_[set] = plan_epoch(readers_[set], options_, at.epoch, set);
  PlannedSequence sequence{set, plans_[set].sequence(at.sequence)};
  ++at.sequence, ++at_.sequence;
  if (has_weights()) {
    if (at.sequence == plans_[set].sequences()) at = {at.epoch + 1, 0, at.tokens};
  } else if (at_.sequence == sequences_per_epoch()) {
    at_ = {at_.epoch + 1, 0};
    move_to_epoch();
  }
  return sequence;
}

DataCursor StepPlanner::cursor() const {
  DataCursor cursor = at_;
  if (set_at_.size() > 1) cursor.sets = set_at_;
  return cursor;
}

std::vector<PlannedSequence> StepPlanner::take_step(LoaderStep& step) {
  std::vector<PlannedSequence> sequences;
  step.begin = cursor();
  step.sets.resize(readers_.size());
  while (std::ssize(sequences) < options_.global_batch_sequences && !is_over()) {
    sequences.push_back(take_sequence());
    const auto& [set, items] = sequences.back();
    SetShare& share = step.sets[set];
    ++share.sequences;
    for (const PackItem& item : items) {
      share.rows += item.rows;
      set_at_[set].tokens += item.rows;
      share.target_count += readers_[set].target_count(item);
    }
  }
  for (const SetShare& share : step.sets) {
    step.sequences += share.sequences;
    step.rows += share.rows;
    step.target_count += share.target_count;
  }
  step.end = cursor();
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

/// Calls body(sequence) for each sequence, some perhaps empty, of batch `number` of `data_rank`. `sequences`:
/// all sequences of the step, which are dealt to the data ranks in turn.
template <class Body>
void for_sequences(const BatchLoaderOptions& options, const std::vector<PlannedSequence>& sequences,
                   int64_t number, int64_t data_rank, Body body) {
  const PlannedSequence none;
  for (int64_t i = 0; i < options.micro_batch_sequences; ++i) {
    const int64_t slot = (number * options.micro_batch_sequences + i) * options.data_ranks + data_rank;
    body(slot < std::ssize(sequences) ? sequences[static_cast<size_t>(slot)] : none);
  }
}

PackedBatch read_batch(std::span<const SequenceReader> readers, const BatchLoaderOptions& options,
                       const std::vector<PlannedSequence>& sequences, int64_t number) {
  PackedBatch batch;
  batch.sequence_count = options.micro_batch_sequences;
  batch.sequence_length = options.sequence_length;
  batch.document_offset.push_back(0);
  for (auto* values : {&batch.token, &batch.target, &batch.position}) {
    values->reserve(static_cast<size_t>(batch.rows()));
  }
  for_sequences(options, sequences, number, options.data_rank, [&](const PlannedSequence& sequence) {
    batch.sequence_set.push_back(static_cast<int32_t>(sequence.set));
    readers[sequence.set].append_sequence(sequence.items, batch);
  });
  return batch;
}

/// Pushes the batches of one step. Returns false at the end of the run, or if the queue was stopped.
bool read_step(std::span<const SequenceReader> readers, const BatchLoaderOptions& options,
               StepPlanner& planner, ReadAheadQueue& queue) {
  if (planner.is_over()) {
    queue.push({});
    return false;
  }
  LoaderStep step;
  const auto sequences = planner.take_step(step);
  for (int64_t k = 0; k < count_batches(options); ++k) {
    QueueEntry entry;
    if (k == 0) entry.step = step;
    entry.batch = read_batch(readers, options, sequences, k);
    if (!queue.push(std::move(entry))) return false;
  }
  return true;
}

}  // namespace

EpochSequences count_epoch_sequences(const TokenDataset& dataset, const BatchLoaderOptions& options,
                                     int64_t epoch, size_t set) {
  const SequenceReader reader(dataset, options.sequence_length, options.loss_on, options.examples);
  const PackPlan plan = plan_epoch(reader, options, epoch, set);
  return {plan.sequences(), plan.hash()};
}

std::map<DocumentSizes, int64_t> coming_documents(DataSets datasets, const BatchLoaderOptions& options,
                                                  const DataCursor& start, int64_t steps) {
  const std::vector<SequenceReader> readers = readers_of(datasets, options);
  StepPlanner planner(readers, checked(options), start);
  std::map<DocumentSizes, int64_t> batches;
  for (int64_t step = 0; step < steps && !planner.is_over(); ++step) {
    LoaderStep taken;
    const auto sequences = planner.take_step(taken);
    for (int64_t rank = 0; rank < options.data_ranks; ++rank)
      for (int64_t k = 0; k < count_batches(options); ++k) {
        DocumentSizes of_batch;
        for_sequences(options, sequences, k, rank, [&](const PlannedSequence& sequence) {
          const DocumentSizes sizes = readers[sequence.set].document_sizes(sequence.items);
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
  std::vector<SequenceReader> readers;
  StepPlanner planner;  // used by the reading thread
  int64_t sequences_per_epoch;
  ReadAheadQueue queue;

  // Used only by the consumer:
  std::optional<PackedBatch> current;
  int64_t batches_left = 0;
  bool at_end = false;

  std::thread thread;

  State(DataSets datasets, const BatchLoaderOptions& o, const DataCursor& start)
      : options(checked(o)),
        readers(readers_of(datasets, o)),
        planner(readers, o, start),
        sequences_per_epoch(planner.sequences_per_epoch()) {}
};

BatchLoader::BatchLoader(DataSets datasets, const BatchLoaderOptions& options, const DataCursor& start)
    : state_(std::make_unique<State>(datasets, options, start)) {
  State& s = *state_;
  s.thread = std::thread([&s] {
    try {
      while (read_step(s.readers, s.options, s.planner, s.queue)) {
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
