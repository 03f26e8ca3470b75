#include "parallel/tensor_parallel.h"

#include <algorithm>
#include <vector>

#include "model/core/rounding.h"

namespace ripstop {
namespace {

// While this object lives, communication is under way, and the frame around it must not end.
class OpenPending {
 public:
  explicit OpenPending(Arena& arena) : arena_(&arena) { arena.open_pending(); }
  ~OpenPending() { arena_->close_pending(); }
  OpenPending(const OpenPending&) = delete;
  OpenPending& operator=(const OpenPending&) = delete;

 private:
  Arena* arena_;
};

Tensor allocate_rows(Context& context, const Tensor& x, int64_t count) {
  return context.arena.allocate(x.dtype, {x.rows() * count, x.cols()}, MemoryCategory::kCommunication);
}

void gather_now(Communicator& group, Context& context, const Tensor& x, const Tensor& all) {
  const OpenPending open(context.arena);
  group.all_gather(context.stream, x, all).wait();
}

class SequenceAxis final : public TensorAxis {
 public:
  SequenceAxis(Communicator& group, bool overlap) : group_(&group), overlap_(overlap) {}

  int64_t count() const override { return group_->size(); }
  int64_t index() const override { return group_->rank(); }
  int64_t local_rows(int64_t rows) const override;
  Tensor gather_sequence(Context& context, const Tensor& x, RowsBody body) const override;
  void gather_rows_of(Context& context, const Tensor& whole) const override {
    const int64_t n = local_rows(whole.rows());
    gather_now(*group_, context, whole.row_range(index() * n, n), whole);
  }
  void scatter_sum(Context& context, const Tensor& out, RowsBody produce, Parts parts) const override;
  void scatter_sum_and_gather(Context& context, const Tensor& out, RowsBody produce, const Tensor& x,
                              const Tensor& gathered,
                              FunctionRef<void(const Tensor& whole)> use) const override;
  void gather(Context& context, const Tensor& x, const Tensor& all) const override {
    gather_now(*group_, context, x, all);
  }

 private:
  void for_ranks(const Tensor& whole, int64_t first, int64_t end, RowsBody body) const;
  void gather_in_parts(Context& context, const Tensor& whole, RowsBody body) const;
  void sum_and_scatter(Context& context, const Tensor& out, RowsBody produce, Parts parts,
                       FunctionRef<void()> meanwhile) const;
  void scatter_in_parts(Context& context, const Tensor& whole, const Tensor& staging, const Tensor& out,
                        RowsBody produce, FunctionRef<void()> meanwhile) const;

  Communicator* group_;
  bool overlap_;
};

int64_t SequenceAxis::local_rows(int64_t rows) const {
  RIPSTOP_CHECK(rows % count() == 0, "{} rows over {} ranks", rows, count());
  return rows / count();
}

Tensor SequenceAxis::gather_sequence(Context& context, const Tensor& x, RowsBody body) const {
  const Tensor whole = allocate_rows(context, x, count());
  if (overlap_) {
    copy_bytes(context.stream, whole.row_range(index() * x.rows(), x.rows()).data, x.data, x.bytes());
    gather_in_parts(context, whole, body);
  } else {
    gather_now(*group_, context, x, whole);
    body(whole, 0);
  }
  return whole;
}

// Calls body(rows, first row) for the rows in `whole` of ranks index() + first .. index() + end - 1, modulo
// the number of ranks. There are two calls if the range wraps to rank 0.
void SequenceAxis::for_ranks(const Tensor& whole, int64_t first, int64_t end, RowsBody body) const {
  const int64_t n = whole.rows() / count();
  while (first < end) {
    const int64_t rank = (index() + first) % count(), ranks = std::min(end - first, count() - rank);
    body(whole.row_range(rank * n, ranks * n), rank * n);
    first += ranks;
  }
}

// Gathers whole [N, C], which already holds this rank's rows. The body works on this rank's rows while the
// rows of the nearer half of the peers arrive, and on the nearer half's rows while the rest arrive. Halves
// are better than single peers: each call takes time on the host, and short products are slow.
void SequenceAxis::gather_in_parts(Context& context, const Tensor& whole, RowsBody body) const {
  const int64_t n = whole.rows() / count(), middle = 1 + count() / 2;
  const auto rows_of = [&](int64_t rank) { return whole.row_range(rank * n, n); };
  const auto start = [&](int64_t first, int64_t end) {
    std::vector<Exchange> exchanges;
    for (int64_t k = first; k < end; ++k) {
      const int64_t from = (index() + k) % count(), to = (index() - k + count()) % count();
      exchanges.push_back({rows_of(index()), to, rows_of(from), from});
    }
    return exchanges.empty() ? Pending() : group_->start_exchanges(context.stream, exchanges);
  };
  const OpenPending open(context.arena);
  Pending nearer = start(1, middle), others = start(middle, count());
  for_ranks(whole, 0, 1, body);
  nearer.wait();
  for_ranks(whole, 1, middle, body);
  others.wait();
  for_ranks(whole, middle, count(), body);
}

void SequenceAxis::scatter_sum(Context& context, const Tensor& out, RowsBody produce, Parts parts) const {
  const Frame scratch(context.arena);
  sum_and_scatter(context, out, produce, parts, [] {});
}

// Starts the gather before the sum, because a device runs both on one stream, in the order of the calls.
void SequenceAxis::scatter_sum_and_gather(Context& context, const Tensor& out, RowsBody produce,
                                          const Tensor& x, const Tensor& gathered,
                                          FunctionRef<void(const Tensor& whole)> use) const {
  const Frame scratch(context.arena);
  const Tensor whole = gathered.empty() ? allocate_rows(context, x, count()) : gathered;
  const OpenPending open(context.arena);
  Pending gathering;
  if (gathered.empty()) gathering = group_->all_gather(context.stream, x, whole);
  sum_and_scatter(context, out, produce, Parts::kAny, [&] {
    gathering.wait();
    use(whole);
  });
}

// Sums and scatters the rows that `produce` writes. `meanwhile` runs while the last rows are sent. The
// caller's frame holds the scratch.
void SequenceAxis::sum_and_scatter(Context& context, const Tensor& out, RowsBody produce, Parts parts,
                                   FunctionRef<void()> meanwhile) const {
  const Tensor whole = allocate_rows(context, out, count());
  // Allocate the same memory with and without overlap.
  const Tensor staging = allocate_rows(context, out, count() - 1);
  if (overlap_ && parts == Parts::kAny)
    return scatter_in_parts(context, whole, staging, out, produce, meanwhile);
  produce(whole, 0);
  const OpenPending open(context.arena);
  Pending summing = group_->reduce_scatter(context.stream, whole, out, out.dtype, Accumulate::kNo, staging);
  meanwhile();
  summing.wait();
}

// Sends each half of the peers its rows as soon as they are produced; then produces this rank's rows.
void SequenceAxis::scatter_in_parts(Context& context, const Tensor& whole, const Tensor& staging,
                                    const Tensor& out, RowsBody produce,
                                    FunctionRef<void()> meanwhile) const {
  const int64_t n = out.rows(), middle = (count() + 1) / 2;
  std::vector<RankPiece> pieces(static_cast<size_t>(count()));
  const auto start = [&](int64_t first, int64_t end) {
    for_ranks(whole, first, end, produce);
    std::vector<Exchange> exchanges;
    for (int64_t k = first; k < end; ++k) {
      const int64_t to = (index() + k) % count(), from = (index() - k + count()) % count();
      const Tensor arrives = staging.row_range((k - 1) * n, n);
      exchanges.push_back({whole.row_range(to * n, n), to, arrives, from});
      pieces[static_cast<size_t>(from)] = {arrives.data, out.dtype};
    }
    return exchanges.empty() ? Pending() : group_->start_exchanges(context.stream, exchanges);
  };
  const OpenPending open(context.arena);
  Pending first = start(1, middle), others = start(middle, count());
  for_ranks(whole, 0, 1, produce);
  pieces[static_cast<size_t>(index())] = {whole.row_range(index() * n, n).data, out.dtype};
  meanwhile();
  // Sum in rank order, whatever the order of arrival.
  first.wait();
  others.wait();
  reduce_pieces(context.stream, pieces, out, Accumulate::kNo);
}

class ReplicatedAxis final : public TensorAxis {
 public:
  explicit ReplicatedAxis(Communicator& group) : group_(&group) {}

  int64_t count() const override { return group_->size(); }
  int64_t index() const override { return group_->rank(); }
  int64_t local_rows(int64_t rows) const override { return rows; }
  Tensor gather_sequence(Context&, const Tensor& x, RowsBody body) const override {
    body(x, 0);
    return x;
  }
  void gather_rows_of(Context&, const Tensor&) const override {}
  void scatter_sum(Context& context, const Tensor& out, RowsBody produce, Parts) const override {
    produce(out, 0);
    const Frame scratch(context.arena);
    const int64_t bytes = group_->all_reduce_scratch_bytes(out.count(), out.dtype);
    const Tensor room =
        context.arena.allocate(DType::kFloat32, {divide_up(bytes, 4)}, MemoryCategory::kCommunication);
    group_->all_reduce(context.stream, out, room);
  }
  void scatter_sum_and_gather(Context& context, const Tensor& out, RowsBody produce, const Tensor& x,
                              const Tensor& gathered,
                              FunctionRef<void(const Tensor& whole)> use) const override {
    scatter_sum(context, out, produce, Parts::kAny);
    use(gathered.empty() ? x : gathered);
  }
  void gather(Context& context, const Tensor& x, const Tensor& all) const override {
    gather_now(*group_, context, x, all);
  }

 private:
  Communicator* group_;
};

}  // namespace

std::unique_ptr<TensorAxis> make_sequence_axis(Communicator& communicator, bool overlap) {
  if (communicator.size() == 1) return std::make_unique<WholeAxis>();
  return std::make_unique<SequenceAxis>(communicator, overlap);
}

std::unique_ptr<TensorAxis> make_replicated_axis(Communicator& communicator) {
  if (communicator.size() == 1) return std::make_unique<WholeAxis>();
  return std::make_unique<ReplicatedAxis>(communicator);
}

}  // namespace ripstop
