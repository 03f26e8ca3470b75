#include "tests/bench/kernel_rows.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "model/head_loss.h"

namespace ripstop {
namespace {

using Make = std::function<Work(Operands&)>;

double real(int64_t n) {
  return static_cast<double>(n);
}

/// Collects the rows for one shape and dtype.
class Rows {
 public:
  Rows(const StepShape& shape, DType dtype) : s_(shape), m_(shape.model), dtype_(dtype) {}

  std::vector<KernelRow> all() && {
    linears();
    attention("attention", whole_documents(), layers());
    attention("packed_attention", packed_documents(), 0);
    positions();
    norms();
    feed_forward();
    vocabulary();
    cross_entropy();
    generation();
    parameters();
    ranks();
    return std::move(rows_);
  }

 private:
  double layers() const { return real(m_.num_hidden_layers); }
  int64_t head_rows() const { return std::min(HeadLoss::kChunkRows, s_.rows()); }
  double head_chunks() const { return real((s_.rows() + head_rows() - 1) / head_rows()); }

  void add(const std::string& name, double times, Make make, std::optional<ProductSizes> product = {}) {
    rows_.push_back({name, dtype_, std::move(make), times, product});
  }

  void linears() {
    const Heads heads = s_.heads();
    linear("qkv", s_.rows(), m_.hidden_size, heads.row(), layers());
    linear("wo", s_.rows(), heads.query * heads.size, m_.hidden_size, layers());
    linear("w13", s_.rows(), m_.hidden_size, 2 * m_.intermediate_size, layers());
    linear("w2", s_.rows(), m_.intermediate_size, m_.hidden_size, layers());
    linear("head", head_rows(), m_.hidden_size, m_.vocab_size, head_chunks());
  }

  void linear(const std::string& what, int64_t n, int64_t in, int64_t out, double times) {
    const double flops = 2.0 * real(n) * real(in) * real(out);
    const DType result = what == "head" ? DType::kFloat32 : dtype_;  // the logits
    add(
        "linear/" + what, times,
        [=](Operands& o) {
          const Tensor x = o.tensor({n, in}), w = o.tensor({out, in}), y = o.zeros(result, {n, out});
          return o.work(&KernelTable::linear,
                        {bytes_of({x, w, y}), flops, o.workspaces().linear(x, w, y, Accumulate::kNo)}, x, w,
                        y, Accumulate::kNo);
        },
        ProductSizes{n, in, out});
    add(
        "linear_backward_input/" + what, times,
        [=](Operands& o) {
          const Tensor dy = o.tensor({n, out}), w = o.tensor({out, in}), dx = o.zeros(o.dtype(), {n, in});
          return o.work(&KernelTable::linear_backward_input,
                        {bytes_of({dy, w, dx}), flops,
                         o.workspaces().linear_backward_input(dy, w, dx, Accumulate::kNo)},
                        dy, w, dx, Accumulate::kNo);
        },
        ProductSizes{n, out, in});
    add(
        "linear_backward_weight/" + what, times,
        [=](Operands& o) {
          const Tensor dy = o.tensor({n, out}), x = o.tensor({n, in}),
                       dw = o.zeros(DType::kFloat32, {out, in});
          return o.work(&KernelTable::linear_backward_weight,
                        {bytes_of({dy, x, dw, dw}), flops,
                         o.workspaces().linear_backward_weight(dy, x, dw, Accumulate::kYes)},
                        dy, x, dw, Accumulate::kYes);
        },
        ProductSizes{out, n, in});
  }

  std::vector<int32_t> whole_documents() const {
    std::vector<int32_t> offset;
    for (int64_t d = 0; d <= s_.sequences; ++d) offset.push_back(static_cast<int32_t>(d * s_.positions));
    return offset;
  }
  // Each sequence has documents of random lengths, an eighth of the sequence on average.
  std::vector<int32_t> packed_documents() const {
    std::mt19937 generator(5);
    std::uniform_int_distribution<int64_t> length(1, std::max<int64_t>(1, s_.positions / 4));
    std::vector<int32_t> offset{0};
    for (int64_t sequence = 0; sequence < s_.sequences; ++sequence)
      for (int64_t at = 0; at < s_.positions;) {
        at = std::min(s_.positions, at + length(generator));
        offset.push_back(static_cast<int32_t>(sequence * s_.positions + at));
      }
    return offset;
  }

  void attention(const std::string& name, const std::vector<int32_t>& offset, double times) {
    const Heads heads = s_.heads();
    const int64_t n = s_.rows();
    int64_t longest = 0;
    double product = 0;  // FLOPs of Q K^T below the diagonal
    for (size_t d = 0; d + 1 < offset.size(); ++d) {
      const int64_t length = offset[d + 1] - offset[d];
      longest = std::max(longest, length);
      product += real(length) * real(length) * real(heads.query * heads.size);
    }
    struct Tensors {
      Tensor qkv, out, log_sum_exp;
      Documents documents;
    };
    const auto tensors = [=](Operands& o) {
      return Tensors{o.tensor({n, heads.row()}), o.zeros(o.dtype(), {n, heads.query * heads.size}),
                     o.zeros(DType::kFloat32, {n, heads.query}),
                     Documents{o.ids(offset), static_cast<int64_t>(offset.size()) - 1, longest}};
    };
    add(name, times, [=](Operands& o) {
      const Tensors t = tensors(o);
      return o.work(&KernelTable::attention,
                    {bytes_of({t.qkv, t.out, t.log_sum_exp}), 2 * product,
                     o.workspaces().attention(n, heads, o.dtype())},
                    t.qkv, t.documents, heads, t.out, t.log_sum_exp);
    });
    add(name + "_backward", times, [=](Operands& o) {
      const Tensors t = tensors(o);
      const Tensor dout = o.tensor(t.out.shape), dqkv = o.zeros(o.dtype(), t.qkv.shape);
      o.kernels().attention(o.call(o.workspaces().attention(n, heads, o.dtype())), t.qkv, t.documents, heads,
                            t.out, t.log_sum_exp);
      return o.work(
          &KernelTable::attention_backward,
          {bytes_of({dout, t.qkv, t.out, t.log_sum_exp, dqkv}), 5 * product,
           o.workspaces().attention_backward(n, longest, heads, o.dtype(), o.device().deterministic)},
          dout, t.qkv, t.out, t.log_sum_exp, t.documents, heads, dqkv);
    });
  }

  void positions() {
    const Heads heads = s_.heads();
    const int64_t n = s_.rows(), length = s_.positions;
    add("rope", 2 * layers(), [=](Operands& o) {
      std::vector<int32_t> position(static_cast<size_t>(n));
      for (size_t i = 0; i < position.size(); ++i)
        position[i] = static_cast<int32_t>(static_cast<int64_t>(i) % length);
      const Tensor qkv = o.tensor({n, heads.row()}), at = o.ids(position);
      const Tensor angle = o.tensor(DType::kFloat32, {length, heads.size / 2, 2}, 0.5);
      const double turned = real(heads.query + heads.key_value) / real(heads.query + 2 * heads.key_value);
      return o.work(&KernelTable::rope, {2 * turned * bytes_of({qkv})}, qkv, at, angle, heads,
                    Direction::kForward);
    });
  }

  void norms() {
    const Shape shape{s_.rows(), m_.hidden_size};
    add("add_rmsnorm", 2 * layers() + 1, [=](Operands& o) {
      const Tensor residual = o.tensor(shape), branch = o.tensor(shape), weight = o.tensor({shape[1]});
      const Tensor sum = o.zeros(o.dtype(), shape), normed = o.zeros(o.dtype(), shape),
                   inverse = o.zeros(DType::kFloat32, {shape[0]});
      return o.work(&KernelTable::add_rmsnorm, {bytes_of({residual, branch, sum, normed})}, residual, branch,
                    weight, 1e-5, sum, normed, inverse);
    });
    add("add_rmsnorm_backward", 2 * layers() + 1, [=](Operands& o) {
      const Tensor dnormed = o.tensor(shape), sum = o.tensor(shape), dresidual = o.tensor(shape),
                   weight = o.tensor({shape[1]});
      const Tensor inverse = o.numbers(std::vector<float>(static_cast<size_t>(shape[0]), 1.0F)),
                   dweight = o.zeros(DType::kFloat32, {shape[1]});
      return o.work(&KernelTable::add_rmsnorm_backward,
                    {bytes_of({dnormed, sum, dresidual, dresidual}), 0,
                     o.workspaces().add_rmsnorm_backward(shape[0], shape[1])},
                    dnormed, sum, weight, inverse, dresidual, dweight, Accumulate::kNo);
    });
  }

  void feed_forward() {
    const Shape wide{s_.rows(), 2 * m_.intermediate_size}, narrow{s_.rows(), m_.intermediate_size};
    add("swiglu", layers(), [=](Operands& o) {
      const Tensor gate_up = o.tensor(wide), out = o.zeros(o.dtype(), narrow);
      return o.work(&KernelTable::swiglu, {bytes_of({gate_up, out})}, gate_up, out);
    });
    add("swiglu_backward", layers(), [=](Operands& o) {
      const Tensor gate_up = o.tensor(wide), dout = o.tensor(narrow);
      return o.work(&KernelTable::swiglu_backward, {2 * bytes_of({gate_up, dout})}, gate_up, dout);
    });
  }

  static std::vector<int32_t> random_tokens(int64_t count, int64_t limit) {
    std::mt19937 generator(3);
    std::uniform_int_distribution<int32_t> uniform(0, static_cast<int32_t>(limit - 1));
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (auto& id : ids) id = uniform(generator);
    return ids;
  }

  void vocabulary() {
    const int64_t n = s_.rows(), columns = m_.hidden_size, words = m_.vocab_size;
    add("embedding", 1, [=](Operands& o) {
      const Tensor token = o.ids(random_tokens(n, words)), table = o.tensor({words, columns});
      const Tensor out = o.zeros(o.dtype(), {n, columns});
      return o.work(&KernelTable::embedding, {2 * bytes_of({out})}, token, table, 0, out);
    });
    const auto backward = [&](const char* name, double times, const std::vector<int32_t>& ids) {
      add(name, times, [=](Operands& o) {
        std::vector<int32_t> order(ids.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](auto i, auto j) {
          return ids[static_cast<size_t>(i)] < ids[static_cast<size_t>(j)];
        });
        const Tensor dtable = o.zeros(DType::kFloat32, {words, columns}), dout = o.tensor({n, columns});
        const Tensor token = o.ids(ids), sorted = o.ids(order);
        return o.work(&KernelTable::embedding_backward, {bytes_of({dout}) + 8 * real(dout.count())}, token,
                      sorted, dout, 0, dtable, Accumulate::kYes);
      });
    };
    backward("embedding_backward", 1, random_tokens(n, words));
    // A token in every twentieth row, as a comma in text: one block adds all its rows.
    std::vector<int32_t> frequent = random_tokens(n, words);
    for (size_t row = 0; row < frequent.size(); row += 20) frequent[row] = 0;
    backward("embedding_backward/frequent", 0, frequent);
    const int64_t rows = head_rows();
    const auto move_rows = [&](const char* name, bool gathers) {
      add(name, head_chunks(), [=](Operands& o) {
        std::vector<int32_t> chosen(static_cast<size_t>(rows));
        std::iota(chosen.begin(), chosen.end(), static_cast<int32_t>(n - rows));
        const Tensor all = o.tensor({n, columns}), some = o.tensor({rows, columns}), index = o.ids(chosen);
        if (gathers) return o.work(&KernelTable::gather_rows, {2 * bytes_of({some})}, all, index, some);
        return o.work(&KernelTable::scatter_rows, {2 * bytes_of({some})}, some, index, all);
      });
    };
    move_rows("gather_rows", true);
    move_rows("scatter_rows", false);
  }

  void cross_entropy() {
    const int64_t rows = head_rows(), words = m_.vocab_size;
    const VocabularySlice slice{0, words};
    add("cross_entropy_statistics", head_chunks(), [=](Operands& o) {
      const Tensor logits = o.tensor(DType::kFloat32, {rows, words}),
                   target = o.ids(random_tokens(rows, words));
      const Tensor statistics = o.zeros(DType::kFloat32, {1, rows, 3});
      return o.work(&KernelTable::cross_entropy_statistics, {bytes_of({logits})}, logits, target, slice,
                    statistics);
    });
    add("cross_entropy", head_chunks(), [=](Operands& o) {
      const Tensor logits = o.tensor(DType::kFloat32, {rows, words}),
                   target = o.ids(random_tokens(rows, words));
      const Tensor statistics = o.zeros(DType::kFloat32, {1, rows, 3}),
                   loss = o.zeros(DType::kFloat32, {rows});
      const Tensor dlogits = o.dtype() == DType::kFloat32 ? logits : o.zeros(o.dtype(), {rows, words});
      o.kernels().cross_entropy_statistics(o.call(), logits, target, slice, statistics);
      return o.work(&KernelTable::cross_entropy, {bytes_of({logits, dlogits})}, logits, target, statistics,
                    slice, loss, dlogits);
    });
    add("add_sum", head_chunks(), [=](Operands& o) {
      const Tensor loss = o.tensor(DType::kFloat32, {rows}), total = o.zeros(DType::kFloat64, {1});
      return o.work(&KernelTable::add_sum, {bytes_of({loss}), 0, o.workspaces().add_sum(rows)}, loss, total);
    });
  }

  // One token for each of 32 texts, with a full cache.
  void generation() {
    constexpr int64_t kTexts = 32;
    const Heads heads = s_.heads();
    const int64_t length = s_.positions, words = m_.vocab_size;
    const auto operands = [=](Operands& o) {
      std::vector<int32_t> slots(kTexts);
      std::iota(slots.begin(), slots.end(), 0);
      return std::tuple(o.tensor({kTexts, heads.row()}), o.ids(slots),
                        o.ids(std::vector<int32_t>(kTexts, static_cast<int32_t>(length - 1))),
                        o.tensor({kTexts, length, 2, heads.key_value * heads.size}));
    };
    add("store_key_value", 0, [=](Operands& o) {
      const auto [qkv, slot, position, cache] = operands(o);
      const double moved = 4 * real(kTexts * heads.key_value * heads.size * element_bytes(o.dtype()));
      return o.work(&KernelTable::store_key_value, {moved}, qkv, slot, position, heads, cache);
    });
    add("attention_cached", 0, [=](Operands& o) {
      const auto [qkv, slot, position, cache] = operands(o);
      const Tensor out = o.zeros(o.dtype(), {kTexts, heads.query * heads.size});
      return o.work(&KernelTable::attention_cached,
                    {bytes_of({qkv, cache, out}), 0, o.workspaces().attention_cached(heads)}, qkv, slot,
                    position, cache, heads, {}, out);
    });
    add("argmax_rows", 0, [=](Operands& o) {
      const Tensor logits = o.tensor(DType::kFloat32, {kTexts, words});
      const Tensor value = o.zeros(DType::kFloat32, {kTexts}), id = o.zeros(DType::kInt32, {kTexts});
      return o.work(&KernelTable::argmax_rows, {bytes_of({logits})}, logits, {0, words}, value, id);
    });
  }

  // A shard of 16 million elements, or the whole model if it is smaller.
  void parameters() {
    const int64_t parameters = parameter_count(m_);
    const int64_t count = std::min<int64_t>(parameters, int64_t{1} << 24);
    const double ranges = real(parameters) / real(count);
    const auto range = [=](Operands& o, float scale = 1) {
      return o.tensor(DType::kFloat32, {count}, scale);
    };
    add("adamw", ranges, [=](Operands& o) {
      const Tensor gradient = range(o, 1e-3F), master = range(o), first = o.zeros(DType::kFloat32, {count}),
                   second = o.zeros(DType::kFloat32, {count});
      const Tensor copy = o.zeros(o.dtype(), {count}), scale = o.numbers({1, 1});
      return o.work(&KernelTable::adamw, {7 * bytes_of({master}) + bytes_of({copy})}, {.learning_rate = 1e-3},
                    scale, gradient, master, first, second, copy);
    });
    // The shard as dense rows, and as the part of each row that one of two ranks of a tensor axis holds.
    for (const int64_t columns : {m_.hidden_size, 2 * m_.hidden_size})
      add(columns == m_.hidden_size ? "adamw/bfloat16 moments" : "adamw/bfloat16 moments, rows", 0,
          [=, stride = m_.hidden_size](Operands& o) {
            const Tensor gradient = range(o, 1e-3F), master = range(o),
                         first = o.zeros(DType::kBFloat16, {count}),
                         second = o.zeros(DType::kBFloat16, {count});
            const Tensor copy = o.zeros(o.dtype(), {count}), scale = o.numbers({1, 1});
            const AdamWStep step{.learning_rate = 1e-3,
                                 .bits = {.key = 1, .stride = stride, .columns = columns}};
            return o.work(&KernelTable::adamw,
                          {3 * bytes_of({master}) + 2 * bytes_of({first, second}) + bytes_of({copy})}, step,
                          scale, gradient, master, first, second, copy);
          });
    add("add_squared_norm", ranges, [=](Operands& o) {
      const Tensor x = range(o), total = o.zeros(DType::kFloat64, {1});
      return o.work(&KernelTable::add_squared_norm, {bytes_of({x}), 0, o.workspaces().add_sum(count)}, x,
                    total);
    });
    add("gradient_scale", 1, [=](Operands& o) {
      const Tensor global = o.zeros(DType::kFloat64, {3}), scale = o.zeros(DType::kFloat32, {2});
      return o.work(&KernelTable::gradient_scale, {}, global, 1, scale);
    });
    add("convert", 0, [=](Operands& o) {
      const Tensor from = range(o), to = o.zeros(o.dtype(), {count});
      return o.work(&KernelTable::convert, {bytes_of({from, to})}, from, to);
    });
    add("fill_zero", 0, [=](Operands& o) {
      const Tensor x = range(o);
      return o.work(&KernelTable::fill_zero, {bytes_of({x})}, x);
    });
    add("add", 0, [=](Operands& o) {
      const Tensor x = range(o), y = range(o);
      return o.work(&KernelTable::add, {bytes_of({x, y, y})}, x, y);
    });
  }

  // The pieces of eight ranks, in a dtype that gradients may have on the way.
  void ranks() {
    constexpr int64_t kPieces = 8, kCount = int64_t{1} << 20;
    add("reduce_pieces", 0, [=](Operands& o) {
      std::vector<RankPiece> pieces;
      for (int64_t p = 0; p < kPieces; ++p) pieces.push_back({o.tensor({kCount}).data, o.dtype()});
      const Tensor out = o.zeros(DType::kFloat32, {kCount});
      return o.work(&KernelTable::reduce_pieces,
                    {real(kPieces * kCount * element_bytes(o.dtype())) + bytes_of({out})}, pieces, out,
                    Accumulate::kNo);
    });
  }

  const StepShape s_;
  const ModelConfig m_;
  const DType dtype_;
  std::vector<KernelRow> rows_;
};

}  // namespace

std::vector<KernelRow> kernel_rows(const StepShape& shape, DType dtype) {
  return Rows(shape, dtype).all();
}

}  // namespace ripstop
