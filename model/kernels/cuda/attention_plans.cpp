#include "model/kernels/cuda/attention_plans.h"

#include <cmath>
#include <limits>

#include "model/device/cuda_device.h"
#include "model/kernels/cuda/ragged_documents.h"

namespace ripstop::cuda {
namespace {

std::byte* place(void* memory, int64_t bytes) {
  return static_cast<std::byte*>(memory) + bytes;
}

RaggedOffsets offsets_in(const AttentionWorkspace& layout, void* workspace) {
  const auto array = [&](int64_t at) { return reinterpret_cast<int64_t*>(place(workspace, at)); };
  return {.row = array(layout.offset_row),
          .query = array(layout.offset_query),
          .key_value = array(layout.offset_key_value),
          .heads = array(layout.offset_heads),
          .length = reinterpret_cast<int32_t*>(place(workspace, layout.length))};
}

AttentionSizes sizes_of(const AttentionOperands& o) {
  return {o.qkv.rows(), o.documents.count, o.documents.longest, o.heads, o.qkv.dtype};
}

bool is_dense(const AttentionSizes& sizes) {
  return attention_schedule(sizes.rows, sizes.documents, sizes.longest, /*padded=*/false).dense;
}

/// The memory that an execution binds. cuDNN reads the scalars from this object, which must outlive `run`.
class Bindings {
 public:
  Bindings(const AttentionOperands& o, void* log_sum_exp)
      : scale_(1.0F / std::sqrt(static_cast<float>(o.heads.size))) {
    const int64_t bytes = element_bytes(o.qkv.dtype) * o.heads.size;
    bind(kQuery, o.qkv.data);
    bind(kKey, place(o.qkv.data, bytes * o.heads.query));
    bind(kValue, place(o.qkv.data, bytes * (o.heads.query + o.heads.key_value)));
    bind(kOut, o.out.data);
    bind(kLogSumExp, log_sum_exp);
    bind(kScale, &scale_);
    bind(kMaskedFuture, &masked_);
  }
  Bindings(const Bindings&) = delete;
  Bindings& operator=(const Bindings&) = delete;

  void bind(AttentionTensor id, void* data) { bindings_.push_back({id, data}); }
  void bind_one() { bind(kOne, &one_); }
  /// Unbinds the previous group, then binds offsets and lengths of the ragged group from document `first` on.
  void bind_group(const RaggedOffsets& offsets, int64_t first, bool backward, bool by_place = false) {
    if (shared_ == 0) shared_ = bindings_.size();
    bindings_.resize(shared_);
    bind(kMaskedPadding, &masked_);
    bind(kOffsetRow, offsets.row + first);
    bind(kOffsetQuery, offsets.query + first);
    if (backward) bind(kOffsetKeyValue, offsets.key_value + first);
    if (!by_place) bind(kOffsetHeads, offsets.heads + first);
    bind(kLength, offsets.length + first);
  }
  std::span<const Binding> all() const { return bindings_; }

 private:
  float scale_, masked_ = -std::numeric_limits<float>::infinity(), one_ = 1;
  std::vector<Binding> bindings_;
  size_t shared_ = 0;
};

}  // namespace

/// The schedule, workspace and plans of one call. `sums` is nullopt for forward.
struct AttentionPlans::Call {
  Call(const AttentionSizes& sizes, std::optional<Sums> sums, bool deterministic)
      : direction(sums ? Direction::kBackward : Direction::kForward),
        // kByPlace and kFromScores need workspace for `length` rows of each document.
        schedule(attention_schedule(sizes.rows, sizes.documents, sizes.longest,
                                    sums == Sums::kByPlace || sums == Sums::kFromScores)),
        layout(sums ? attention_backward_workspace(sizes.rows, sizes.longest, sizes.heads, deterministic)
                    : attention_workspace(sizes.rows, sizes.heads)),
        shape{.query_heads = sizes.heads.query,
              .key_value_heads = sizes.heads.key_value,
              .head_size = sizes.heads.size,
              .length = schedule.length,
              .dense = schedule.dense,
              .sums = sums.value_or(Sums::kByRow)},
        by_place(schedule.dense || sums == Sums::kByPlace),
        own(sums && by_place ? layout.dkey_grouped : layout.plan) {}

  Direction direction;
  AttentionSchedule schedule;
  AttentionWorkspace layout;
  AttentionShape shape;
  bool by_place;  ///< log_sum_exp is read or written as [document, head, position]
  /// Offset in bytes of the plan's own workspace. In backward with by_place, the plan itself allocates dK and
  /// dV per query head, so its own workspace includes the memory for these.
  int64_t own;
  std::vector<const Plan*> plans;  ///< plans of the groups, from all_plans()
};

std::optional<Sums> attention_sums(const AttentionGpu& gpu, int64_t head_size, bool dense,
                                   bool deterministic) {
  // kOrdered works from cuDNN 9.25.0 on, and kFromScores on Blackwell from 9.18.0 on.
  constexpr size_t kFirstOrdered = 92500, kFirstOnBlackwell = 91800;
  // Buffers by row give right results only on these GPUs, and NVIDIA's front end uses them only there.
  const bool by_row = (gpu.major == kHopper || gpu.major == kBlackwell) && head_size % 16 == 0;
  if (!deterministic) return by_row ? Sums::kByRow : Sums::kByPlace;
  if (gpu.major == kHopper && by_row && gpu.cudnn_version >= kFirstOrdered) return Sums::kOrdered;
  if (gpu.major == kBlackwell && by_row && gpu.cudnn_version >= kFirstOnBlackwell) return Sums::kFromScores;
  if (gpu.major == kHopper ? by_row || dense : gpu.major == kAmpere && dense) return Sums::kFromScores;
  return std::nullopt;
}

std::optional<std::string> attention_unsupported(const AttentionGpu& gpu, bool dense) {
  constexpr size_t kFirstPackedAmpere = 91801;  // cuDNN 9.18.1, according to its release notes
  if (gpu.cudnn_version < kOldestCudnn)
    return fmt::format("this cuDNN ({}) is older than {}", gpu.cudnn_version, kOldestCudnn);
  if (dense) return std::nullopt;
  if (gpu.major == 8 && gpu.cudnn_version < kFirstPackedAmpere)
    return fmt::format(
        "this cuDNN ({}) is older than {}, the first for packed documents on compute capability 8.x",
        gpu.cudnn_version, kFirstPackedAmpere);
  // Source: Transformer Engine (its pull request 2693), which gives cuDNN no packed rows of q|k|v on these
  // GPUs.
  if (gpu.major == 12)
    return "on compute capability 12.x, cuDNN does not support packed documents whose queries, keys and "
           "values share rows";
  return std::nullopt;
}

AttentionPlans::AttentionPlans(int device) {
  check_cuda(cudaDeviceGetAttribute(&gpu_.major, cudaDevAttrComputeCapabilityMajor, device),
             "cudaDeviceGetAttribute");
  gpu_.cudnn_version = cudnnGetVersion();
}

AttentionPlans::~AttentionPlans() {
  // Plans refer to the handle, so they are destroyed first.
  plans_.clear();
  if (handle_ != nullptr) static_cast<void>(cudnnDestroy(handle_));
}

// The handle is made on first use, because it takes device memory and time.
void AttentionPlans::ensure_handle(const Stream& stream) {
  if (handle_ != nullptr) return;
  check_cudnn(cudnnCreate(&handle_), "cudnnCreate");
  check_cudnn(cudnnSetStream(handle_, native_stream(stream)), "cudnnSetStream");
}

// A refusal is kept, too, so that cuDNN is not asked again in every layer.
const Plan& AttentionPlans::plan(Direction direction, const AttentionShape& shape,
                                 int64_t most_workspace_bytes) {
  const std::pair key{direction, shape};
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  const PlanTarget target{.handle = handle_, .major = gpu_.major};
  return plans_.emplace(key, attention_plan(direction, shape, target, most_workspace_bytes)).first->second;
}

// Collects the plans of all groups before any runs, since cuDNN computes all documents of a call or none.
std::optional<std::string> AttentionPlans::all_plans(const Stream& stream, Call& call) {
  ensure_handle(stream);
  const int64_t most_workspace_bytes = call.layout.bytes - call.own;
  for (const DocumentGroup& group : call.schedule.groups) {
    call.shape.documents = group.count;
    const Plan& made = plan(call.direction, call.shape, most_workspace_bytes);
    if (!made.left_out().empty())
      cuda_stream(stream).note("cuDNN's first choice for attention does not run, another does",
                               made.left_out());
    if (!made.ok()) return "cuDNN refuses it: " + made.refusal();
    if (made.workspace_bytes() > most_workspace_bytes)
      return fmt::format("cuDNN needs {} bytes of workspace; the plan has {}", made.workspace_bytes(),
                         most_workspace_bytes);
    call.plans.push_back(&made);
  }
  return std::nullopt;
}

std::optional<std::string> AttentionPlans::unsupported(const AttentionSizes& sizes) const {
  return attention_unsupported(gpu_, is_dense(sizes));
}

int64_t AttentionPlans::prepare(const Stream& stream, const AttentionSizes& sizes, Direction direction) {
  if (unsupported(sizes)) return 0;
  const int64_t before = count();
  const bool deterministic = stream.device().deterministic;
  std::optional<Sums> sums;
  if (direction == Direction::kBackward) {
    sums = attention_sums(gpu_, sizes.heads.size, is_dense(sizes), deterministic);
    if (!sums) return 0;
  }
  Call planned(sizes, sums, deterministic);
  static_cast<void>(all_plans(stream, planned));
  return count() - before;
}

std::optional<std::string> AttentionPlans::forward(const KernelCall& call, const AttentionOperands& o) {
  const AttentionSizes sizes = sizes_of(o);
  if (auto why = unsupported(sizes)) return why;
  Call planned(sizes, std::nullopt, call.stream.device().deterministic);
  if (auto why = all_plans(call.stream, planned)) return why;
  const auto& [direction, schedule, layout, shape, dense, own, plans] = planned;
  const RaggedOffsets offsets = offsets_in(layout, call.workspace);
  auto* by_place = reinterpret_cast<float*>(place(call.workspace, layout.log_sum_exp));
  if (!dense) locate_documents(call, o.documents, o.heads, offsets);
  Bindings bindings(o, dense ? by_place : o.log_sum_exp.data);
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!dense) bindings.bind_group(offsets, schedule.groups[i].first, /*backward=*/false);
    plans[i]->run(handle_, bindings.all(), place(call.workspace, own));
  }
  if (dense)
    log_sum_exp_by_row(call, o.documents, schedule.groups[0], schedule.length, by_place, o.log_sum_exp);
  return std::nullopt;
}

std::optional<std::string> AttentionPlans::backward(const KernelCall& call, const AttentionOperands& o) {
  const AttentionSizes sizes = sizes_of(o);
  if (auto why = unsupported(sizes)) return why;
  const bool deterministic = call.stream.device().deterministic;
  const auto sums = attention_sums(gpu_, o.heads.size, is_dense(sizes), deterministic);
  if (!sums)
    return fmt::format("cuDNN has no deterministic backward for {} documents on compute capability {}.x",
                       is_dense(sizes) ? "equally long" : "packed", gpu_.major);
  Call planned(sizes, sums, deterministic);
  if (auto why = all_plans(call.stream, planned)) return why;
  const auto& [direction, schedule, layout, shape, by_place, own, plans] = planned;
  const bool dense = schedule.dense;

  const auto part = [&](int64_t at) { return place(call.workspace, at); };
  const RaggedOffsets offsets = offsets_in(layout, call.workspace);
  if (!dense) locate_documents(call, o.documents, o.heads, offsets);
  Bindings bindings(o, by_place ? part(layout.log_sum_exp) : o.log_sum_exp.data);
  const int64_t bytes = element_bytes(o.qkv.dtype) * o.heads.size;
  bindings.bind_one();
  bindings.bind(kDOut, o.dout->data);
  bindings.bind(kDQuery, dense ? o.dqkv->data : part(layout.dquery));
  bindings.bind(kDKey, dense ? place(o.dqkv->data, bytes * o.heads.query) : part(layout.dkey));
  bindings.bind(kDValue, dense ? place(o.dqkv->data, bytes * (o.heads.query + o.heads.key_value))
                               : part(layout.dvalue));
  bindings.bind(kRowSum, part(layout.row_sum));
  if (*sums != Sums::kFromScores) bindings.bind(kDQuerySum, part(layout.dquery_sum));
  if (!by_place && o.heads.query != o.heads.key_value) {
    bindings.bind(kDKeyGrouped, part(layout.dkey_grouped));
    bindings.bind(kDValueGrouped, part(layout.dvalue_grouped));
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    const DocumentGroup& group = schedule.groups[i];
    if (!dense) bindings.bind_group(offsets, group.first, /*backward=*/true, by_place);
    if (by_place)
      log_sum_exp_by_place(call, o.documents, group, schedule.length, o.log_sum_exp,
                           reinterpret_cast<float*>(part(layout.log_sum_exp)));
    plans[i]->run(handle_, bindings.all(), part(own));
  }
  if (dense) return std::nullopt;
  const auto gradient = [&](int64_t at) { return reinterpret_cast<const BFloat16*>(part(at)); };
  join_gradients(call, {gradient(layout.dquery), gradient(layout.dkey), gradient(layout.dvalue)}, o.heads,
                 *o.dqkv);
  single_row_gradients(call, o.documents, o.heads, *o.dout, *o.dqkv);
  return std::nullopt;
}

}  // namespace ripstop::cuda
