#include "data/batch_loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "model/core/error.h"

namespace ripstop {
namespace {

/// Rows without data lie in documents no longer than this, so that attention spends nothing on them.
constexpr int64_t kPaddingDocumentRows = 32;

int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// An example, or a piece of one, as it enters a sequence. tokens[i + 1] is the target of tokens[i].
struct Row {
  std::vector<int32_t> tokens;  // rows + 1
  int64_t first_target = 0;     // place in `tokens` of the first one whose prediction counts
};

bool cuts(const TokenDataset& dataset) {
  return dataset.header().kind == ExampleKind::kSummary;
}

struct CutExamples {
  std::vector<int64_t> rows;  // of each, after cutting
  int64_t cut_summaries = 0, cut_documents = 0;
};

CutExamples cut_examples(const TokenDataset& dataset, int64_t longest) {
  if (dataset.examples() == 0)
    throw Error(ExitCode::kInputData, fmt::format("{}: has no examples", dataset.path().string()),
                "ripstop prepare shows how many each split gets, and how an empty one gets some");
  CutExamples examples;
  examples.rows.reserve(static_cast<size_t>(dataset.examples()));
  for (int64_t i = 0; i < dataset.examples(); ++i) {
    const int64_t begin = dataset.example_begin(i), end = dataset.example_end(i);
    const int64_t whole = end - begin - 1;
    examples.rows.push_back(cuts(dataset) ? std::min(whole, longest) : whole);
    if (cuts(dataset) && whole > longest) {
      const bool summary_fits = end - dataset.separator_begin(i) <= longest;
      ++(summary_fits ? examples.cut_documents : examples.cut_summaries);
    }
  }
  return examples;
}

PackPlan plan_epoch(const CutExamples& examples, const BatchLoaderOptions& options, int64_t epoch) {
  return {examples.rows,
          {options.sequence_length, options.shuffle_seed, epoch, options.pack, options.shuffle}};
}

}  // namespace

EpochSequences count_epoch_sequences(const TokenDataset& dataset, const BatchLoaderOptions& options,
                                     int64_t epoch) {
  const CutExamples examples = cut_examples(dataset, options.sequence_length);
  const PackPlan plan = plan_epoch(examples, options, epoch);
  return {plan.sequences(), plan.hash()};
}

struct BatchLoader::State {
  const TokenDataset& dataset;
  BatchLoaderOptions options;
  const CutExamples examples;
  int64_t sequences_per_epoch = 0;

  // Owned by the reading thread once it runs.
  std::optional<PackPlan> plan;
  DataCursor at;

  // What the reading thread hands over. A step travels with its first batch; an entry without both ends the
  // run.
  struct Entry {
    std::optional<LoaderStep> step;
    std::optional<PackedBatch> batch;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> queue;
  std::exception_ptr failure;
  bool stopping = false;

  // Owned by the consumer.
  std::optional<PackedBatch> current;
  int64_t batches_left = 0;
  bool at_end = false;
  std::thread thread;

  State(const TokenDataset& d, const BatchLoaderOptions& o, DataCursor start)
      : dataset(d), options(o), examples(cut_examples(d, o.sequence_length)), at(start) {}

  int64_t batches_per_step() const {
    return ceil_divide(ceil_divide(options.global_batch_sequences, options.data_ranks),
                       options.micro_batch_sequences);
  }
  bool run_is_over() const { return options.epochs > 0 && at.epoch >= options.epochs; }

  int64_t first_target(const PackItem& item) const;
  int64_t target_count(const PackItem& item) const;
  std::vector<std::vector<PackItem>> take_step(LoaderStep& step);
  Row read(const PackItem& item) const;
  void append_sequence(const std::vector<PackItem>& items, PackedBatch& batch) const;
  void append_padding(int64_t count, PackedBatch& batch) const;
  bool push(Entry entry);
  bool read_step();
  void read_ahead();
  Entry pop();
};

/// Place, in the tokens of `item` as read() gives them, of the first one whose prediction counts.
int64_t BatchLoader::State::first_target(const PackItem& item) const {
  if (options.loss_on == LossOn::kAll) return 1;
  const int64_t begin = dataset.example_begin(item.example), end = dataset.example_end(item.example);
  const int64_t target = dataset.target_begin(item.example);
  if (!cuts(dataset)) return std::max<int64_t>(1, target - begin - item.first_row);
  const int64_t kept = item.rows + 1;
  if (kept == end - begin) return target - begin;
  if (end - dataset.separator_begin(item.example) <= options.sequence_length) return kept - (end - target);
  return 1 + target - dataset.separator_begin(item.example);
}

int64_t BatchLoader::State::target_count(const PackItem& item) const {
  return std::max<int64_t>(0, item.rows + 1 - first_target(item));
}

/// Tokens of an item: all of them; those of a piece; or the head, then separator and summary.
Row BatchLoader::State::read(const PackItem& item) const {
  Row row;
  row.first_target = first_target(item);
  const int64_t kept = item.rows + 1;
  row.tokens.resize(static_cast<size_t>(kept));
  const int64_t begin = dataset.example_begin(item.example), end = dataset.example_end(item.example);
  if (!cuts(dataset) || kept == end - begin) {
    dataset.read_tokens(begin + item.first_row, begin + item.first_row + kept, row.tokens.data());
    return row;
  }
  const int64_t separator = dataset.separator_begin(item.example);
  const int64_t head = std::max<int64_t>(1, kept - (end - separator));
  dataset.read_tokens(begin, begin + head, row.tokens.data());
  dataset.read_tokens(separator, separator + kept - head, row.tokens.data() + head);
  return row;
}

void BatchLoader::State::append_padding(int64_t count, PackedBatch& batch) const {
  while (count > 0) {
    const int64_t length = std::min(count, kPaddingDocumentRows);
    for (int64_t i = 0; i < length; ++i) {
      batch.token.push_back(0);
      batch.target.push_back(-1);
      batch.position.push_back(static_cast<int32_t>(i));
    }
    batch.document_offset.push_back(static_cast<int32_t>(batch.token.size()));
    count -= length;
  }
}

void BatchLoader::State::append_sequence(const std::vector<PackItem>& items, PackedBatch& batch) const {
  int64_t used = 0;
  for (const PackItem& item : items) {
    const Row row = read(item);
    for (int64_t i = 0; i < item.rows; ++i) {
      const bool counts = i + 1 >= row.first_target;
      batch.token.push_back(row.tokens[static_cast<size_t>(i)]);
      batch.target.push_back(counts ? row.tokens[static_cast<size_t>(i) + 1] : -1);
      batch.position.push_back(static_cast<int32_t>(i));
      batch.target_count += counts;
    }
    batch.document_offset.push_back(static_cast<int32_t>(batch.token.size()));
    used += item.rows;
  }
  append_padding(options.sequence_length - used, batch);
}

/// The step's sequences in slot order, and moves the cursor past them. Fewer than asked for at the end of the
/// run.
std::vector<std::vector<PackItem>> BatchLoader::State::take_step(LoaderStep& step) {
  std::vector<std::vector<PackItem>> sequences;
  step.begin = at;
  while (static_cast<int64_t>(sequences.size()) < options.global_batch_sequences && !run_is_over()) {
    if (plan->epoch() != at.epoch) plan.emplace(plan_epoch(examples, options, at.epoch));
    sequences.push_back(plan->sequence(at.sequence));
    for (const PackItem& item : sequences.back()) {
      ++step.examples;
      step.rows += item.rows;
      step.target_count += target_count(item);
    }
    if (++at.sequence == plan->sequences()) at = {at.epoch + 1, 0};
  }
  step.end = at;
  step.sequences = static_cast<int64_t>(sequences.size());
  const bool same_plan = plan->epoch() == at.epoch;
  step.epoch = static_cast<double>(at.epoch) +
               (same_plan ? static_cast<double>(at.sequence) / static_cast<double>(plan->sequences()) : 0.0);
  return sequences;
}

/// Gives `entry` to the consumer once there is room. False: the loader is being destroyed.
bool BatchLoader::State::push(Entry entry) {
  std::unique_lock lock(mutex);
  const size_t most = static_cast<size_t>(std::max<int64_t>(1, options.read_ahead_batches));
  changed.wait(lock, [&] { return stopping || queue.size() < most; });
  if (stopping) return false;
  queue.push_back(std::move(entry));
  changed.notify_all();
  return true;
}

/// Reads one step's batches of this rank. False: nothing more is wanted.
bool BatchLoader::State::read_step() {
  if (run_is_over()) {
    push({});
    return false;
  }
  LoaderStep step;
  const auto sequences = take_step(step);
  const int64_t count = batches_per_step(), b = options.micro_batch_sequences, t = options.sequence_length;
  for (int64_t k = 0; k < count; ++k) {
    PackedBatch batch;
    batch.sequence_count = b;
    batch.sequence_length = t;
    batch.document_offset.push_back(0);
    for (auto* values : {&batch.token, &batch.target, &batch.position}) {
      values->reserve(static_cast<size_t>(b * t));
    }
    for (int64_t i = k * b; i < (k + 1) * b; ++i) {
      const int64_t slot = i * options.data_ranks + options.data_rank;
      if (slot < static_cast<int64_t>(sequences.size())) {
        append_sequence(sequences[static_cast<size_t>(slot)], batch);
      } else {
        append_padding(t, batch);
      }
    }
    Entry entry;
    if (k == 0) entry.step = step;
    entry.batch = std::move(batch);
    if (!push(std::move(entry))) return false;
  }
  return true;
}

void BatchLoader::State::read_ahead() {
  try {
    while (read_step()) {
    }
  } catch (...) {
    const std::lock_guard lock(mutex);
    failure = std::current_exception();
    changed.notify_all();
  }
}

BatchLoader::State::Entry BatchLoader::State::pop() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return !queue.empty() || failure; });
  if (queue.empty()) std::rethrow_exception(failure);
  Entry entry = std::move(queue.front());
  queue.pop_front();
  changed.notify_all();
  return entry;
}

BatchLoader::BatchLoader(const TokenDataset& dataset, const BatchLoaderOptions& options, DataCursor start)
    : state_(std::make_unique<State>(dataset, options, start)) {
  State& s = *state_;
  RIPSTOP_CHECK(options.sequence_length >= 2, "sequence_length is {}", options.sequence_length);
  RIPSTOP_CHECK(options.global_batch_sequences >= 1 && options.micro_batch_sequences >= 1,
                "batches of {} and {} sequences", options.global_batch_sequences,
                options.micro_batch_sequences);
  RIPSTOP_CHECK(options.data_rank >= 0 && options.data_rank < options.data_ranks, "data rank {} of {}",
                options.data_rank, options.data_ranks);
  RIPSTOP_CHECK(options.micro_batch_sequences <= INT32_MAX / options.sequence_length, "{} x {} rows",
                options.micro_batch_sequences, options.sequence_length);
  s.plan.emplace(plan_epoch(s.examples, options, start.epoch));
  s.sequences_per_epoch = s.plan->sequences();
  if (start.epoch < 0 || start.sequence < 0 || start.sequence >= s.sequences_per_epoch) {
    fail(ExitCode::kInputData, "{}: epoch {} has {} sequences, the run wants to go on at sequence {}",
         dataset.path().string(), start.epoch, s.sequences_per_epoch, start.sequence);
  }
  s.thread = std::thread([&s] { s.read_ahead(); });
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

int64_t BatchLoader::batches_per_step() const {
  return state_->batches_per_step();
}
int64_t BatchLoader::sequences_per_epoch() const {
  return state_->sequences_per_epoch;
}
int64_t BatchLoader::cut_summaries() const {
  return state_->examples.cut_summaries;
}
int64_t BatchLoader::cut_documents() const {
  return state_->examples.cut_documents;
}

std::optional<LoaderStep> BatchLoader::next_step() {
  State& s = *state_;
  RIPSTOP_CHECK(s.batches_left == 0, "{} batches of the step before are unused", s.batches_left);
  if (s.at_end) return std::nullopt;
  State::Entry entry = s.pop();
  if (!entry.step) {
    s.at_end = true;
    return std::nullopt;
  }
  s.current = std::move(entry.batch);
  s.batches_left = s.batches_per_step();
  return entry.step;
}

const PackedBatch& BatchLoader::next_batch() {
  State& s = *state_;
  RIPSTOP_CHECK(s.batches_left > 0, "next_batch() without a step");
  const bool first = s.batches_left == s.batches_per_step();
  if (!first) s.current = s.pop().batch;
  --s.batches_left;
  return *s.current;
}

}  // namespace ripstop
