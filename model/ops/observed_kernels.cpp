// Kernels that count their work and leave it to the observer of their stream to run them.
#include <algorithm>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "model/ops/kernel_table.h"
#include "model/ops/kernel_work.h"

namespace ripstop {
namespace {

using Table = KernelTable;

template <auto>
struct Entry;
// Whether kEntry is one of kEntries. The entries may have different types.
template <auto kEntry, auto... kEntries>
constexpr bool kIs = (std::is_same_v<Entry<kEntry>, Entry<kEntries>> || ...);

template <size_t kSize>
struct Name {
  consteval Name(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }  // NOLINT: a literal converts
  char text[kSize];
};

void add_operand(KernelWork& work, const Tensor& t) {
  if (t.empty()) return;
  if (work.bytes == 0) work.dtype = t.dtype;
  if (work.bytes == 0 || t.count() > work.sizes[0] * work.sizes[1]) work.sizes = {t.rows(), t.cols(), 1};
  work.bytes += t.count() * element_bytes(t.dtype);
}
void add_operand(KernelWork&, const auto&) {}

// Counts the arguments at indices kPlaces; an index that is given twice counts twice.
template <size_t... kPlaces>
void add_operands(KernelWork& work, const auto& args) {
  (add_operand(work, std::get<kPlaces>(args)), ...);
}

void set_product(KernelWork& work, const Tensor& result, int64_t inner) {
  work.sizes = {result.rows(), result.cols(), inner};
  work.flops = 2 * result.count() * inner;
}

// Forward has two matrix products, backward five. Causal attention needs only half of each product.
void set_attention(KernelWork& work, int64_t products, const Tensor& qkv, const Documents& documents,
                   const Heads& heads) {
  work.sizes = {qkv.rows(), documents.longest, heads.query * heads.size};
  work.flops = products * work.sizes[0] * work.sizes[1] * work.sizes[2];
}

template <auto kEntry>
KernelWork work_of(const char* name, const auto&... operands) {
  const auto args = std::tie(operands...);
  KernelWork work{.kernel = name};
  if constexpr (kIs<kEntry, &Table::embedding>) {
    add_operands<3, 0, 3>(work, args);  // reads as many rows of the table as it writes
  } else if constexpr (kIs<kEntry, &Table::embedding_backward>) {
    add_operands<2, 2, 2>(work, args);  // reads dout, and reads and writes as many rows of dtable
    if (std::get<5>(args) == Accumulate::kNo) add_operands<4>(work, args);
  } else if constexpr (kIs<kEntry, &Table::gather_rows>) {
    add_operands<2, 1, 2>(work, args);
  } else if constexpr (kIs<kEntry, &Table::scatter_rows>) {
    add_operands<0, 1, 0>(work, args);
  } else if constexpr (kIs<kEntry, &Table::reduce_pieces>) {
    add_operands<1>(work, args);
    for (const RankPiece& piece : std::get<0>(args))
      work.bytes += std::get<1>(args).count() * element_bytes(piece.dtype);
  } else {
    (add_operand(work, operands), ...);
  }
  // The operands given here are read and written, so they count twice.
  if constexpr (kIs<kEntry, &Table::rope, &Table::scale>)
    add_operands<kIs<kEntry, &Table::rope> ? 0 : 1>(work, args);
  if constexpr (kIs<kEntry, &Table::swiglu_backward>) add_operands<0, 1>(work, args);
  if constexpr (kIs<kEntry, &Table::add, &Table::add_bias>) add_operands<1>(work, args);
  if constexpr (kIs<kEntry, &Table::add_rmsnorm_backward>) add_operands<4>(work, args);
  if constexpr (kIs<kEntry, &Table::norm_heads_backward>) add_operands<4>(work, args);
  if constexpr (kIs<kEntry, &Table::adamw>) add_operands<3, 4, 5>(work, args);

  if constexpr (kIs<kEntry, &Table::linear, &Table::linear_backward_input>)
    set_product(work, std::get<2>(args), std::get<0>(args).cols());
  if constexpr (kIs<kEntry, &Table::linear_backward_weight>)
    set_product(work, std::get<2>(args), std::get<0>(args).rows());
  if constexpr (kIs<kEntry, &Table::attention>)
    set_attention(work, 2, std::get<0>(args), std::get<1>(args), std::get<2>(args));
  if constexpr (kIs<kEntry, &Table::attention_backward>)
    set_attention(work, 5, std::get<1>(args), std::get<4>(args), std::get<5>(args));
  if (const int64_t elements = work.sizes[0] * work.sizes[1]; work.flops == 0 && elements > 0)
    work.sizes[2] = std::max<int64_t>(work.bytes / elements, 1);
  return work;
}

template <auto kEntry, Name kName, class Kernel>
struct Observed;
template <auto kEntry, Name kName, class... Args>
struct Observed<kEntry, kName, void (*)(const KernelCall&, Args...)> {
  static void run(const KernelCall& call, Args... args) {
    const auto kernel = kernels(call.stream.device().kind).*kEntry;
    call.stream.observer()->run(work_of<kEntry>(kName.text, args...), [&] { kernel(call, args...); });
  }
};
// prepare_attention() makes plans before the steps, so the observer does not run it.
template <auto kEntry, Name kName, class... Args>
struct Observed<kEntry, kName, int64_t (*)(const Stream&, Args...)> {
  static int64_t run(const Stream& stream, Args... args) {
    return (kernels(stream.device().kind).*kEntry)(stream, args...);
  }
};

}  // namespace

const KernelTable& observed_kernels() {
#define RIPSTOP_OBSERVED(kernel) .kernel = Observed<&Table::kernel, #kernel, decltype(Table::kernel)>::run,
  static constexpr KernelTable table{RIPSTOP_PRODUCTS(RIPSTOP_OBSERVED)
                                         RIPSTOP_OTHER_KERNELS(RIPSTOP_OBSERVED)};
#undef RIPSTOP_OBSERVED
  return table;
}

}  // namespace ripstop
