#pragma once
#include "model/attention.h"
#include "model/mlp.h"

namespace ripstop {

/// A transformer block: attention, then the feed-forward layer.
class Block {
 public:
  /// Tensors of forward that backward needs. Forward fills only tensors that have memory.
  struct Saved {
    Attention::Saved attention;
    Mlp::Saved mlp;
  };

  Block(const ModelConfig& config, int64_t tensor_count)
      : attention(config, tensor_count), mlp(config, tensor_count) {}

  Attention attention;
  Mlp mlp;

  /// Allocates, in the caller's arena frame, the tensors that forward keeps.
  Saved allocate(Context& context, int64_t rows, DType dtype, Recompute recompute = Recompute::kNone) const {
    return {attention.allocate(context, rows, dtype, recompute),
            mlp.allocate(context, rows, dtype, recompute)};
  }

  /// See Attention::forward. With Recompute::kFull, residual.shared_sum must not be null.
  void forward(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
               const Saved& saved, const CacheRows* store = nullptr) const {
    attention.forward(context, batch, angle, residual, saved.attention, store);
    mlp.forward(context, residual, saved.mlp);
  }

  /// On entry, dresidual [n, C] is the gradient of the loss w.r.t. the block's output; on return, w.r.t. the
  /// block's input (undefined with InputGradient::kNot). Computes again the tensors of `saved` that have no
  /// memory, and may overwrite gate_up.
  void backward(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
                const Tensor& dresidual, InputGradient input = InputGradient::kNeeded) const;

  /// See Attention::decode.
  void decode(Context& context, const CacheRows& rows, const Tensor& angle, Residual& residual,
              const Saved& saved) const {
    attention.decode(context, rows, angle, residual, saved.attention);
    mlp.forward(context, residual, saved.mlp);
  }

  /// Returns the parameters in the order of the unit's tensors; see parameter_table.
  std::vector<Parameter*> parameters() {
    std::vector<Parameter*> all{&attention.norm, &mlp.norm};
    for (Parameter* vector : attention.more_vectors()) all.push_back(vector);
    for (Parameter* matrix : {&attention.wqkv, &attention.wo, &mlp.w13, &mlp.w2}) all.push_back(matrix);
    return all;
  }

  /// Makes the block's `adapters`. `unit`: the block's unit in parameter_table.
  void set_adapters(const UnitSpec& unit, const std::vector<AdapterSpec>& adapters, const LoraConfig& lora,
                    int64_t tensor_count);
  /// Returns the adapters' parameters in the order of the unit's tensors; see adapter_table.
  std::vector<Parameter*> adapter_parameters();

 private:
  // Returns a copy of `saved` in which attention's tensors and the feed-forward layer's norm are computed
  // again, in the caller's arena frame.
  Saved forward_again(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved) const;
};

}  // namespace ripstop
