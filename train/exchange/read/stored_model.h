// StoredModel: a model in files, a checkpoint of ripstop or a directory of Hugging Face.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>

#include "model/core/function_ref.h"
#include "parallel/communicator.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {

/// A model whose weights may be read into any mesh. A checkpoint of adapters is the whole model that they
/// make: base and adapters, merged. Holds its files open, and no weights. Can be moved, not copied.
class StoredModel {
 public:
  /// `base`: the model under the adapters of such a checkpoint; null for others, and if it is not needed.
  explicit StoredModel(Checkpoint checkpoint, std::unique_ptr<StoredModel> base = nullptr);
  /// `model` was opened in `directory`. Throws Error(kInputData) if a tokenizer.model or ripstop_prompt.json
  /// there is damaged.
  StoredModel(std::filesystem::path directory, PretrainedModel model);

  /// The checkpoint's directory, or Hugging Face's.
  const std::filesystem::path& directory() const { return directory_; }
  /// Facts beside the weights. A Hugging Face model has its sizes, the hash of its tokenizer.model if it has
  /// one, and a config that evaluates it; step 0, and no data set.
  const CheckpointState& state() const { return state_; }
  const ModelConfig& config() const { return state_.model; }
  bool is_pretrained() const { return checkpoint() == nullptr; }
  /// Null if it is a model of Hugging Face.
  const Checkpoint* checkpoint() const { return std::get_if<Checkpoint>(&source_); }
  /// Null if it is no model of Hugging Face.
  const PretrainedModel* pretrained() const { return std::get_if<PretrainedModel>(&source_); }
  /// Null unless the checkpoint holds adapters alone, and their base is open (BaseChoice).
  const StoredModel* base() const { return base_.get(); }

  /// A hash that tells models apart and needs no file to be read whole: of the sidecars of a checkpoint, else
  /// as ripstop::samples_hash. Not collective. Throws Error(kStorage).
  std::string samples_hash() const;
  /// A hash of all weights: of the sidecars of a checkpoint, whose blocks are compared with them when they
  /// are read, else contents_hash. Collective over `world`. Throws Error(kStorage).
  std::string weights_hash(
      Communicator& world, FunctionRef<void(int64_t percent)> watch = [](int64_t) {}) const;

 private:
  std::filesystem::path directory_;
  CheckpointState state_;
  std::variant<Checkpoint, PretrainedModel> source_;
  std::unique_ptr<StoredModel> base_;
};

}  // namespace ripstop
