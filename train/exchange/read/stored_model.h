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

/// A model whose weights can be read into any mesh. A checkpoint of adapters stands for the whole model: base
/// and adapters, merged. Holds open files and no weights. Can be moved, not copied.
class StoredModel {
 public:
  /// `base`: the model under the adapters if `checkpoint` has adapters and their base is needed; else null.
  explicit StoredModel(Checkpoint checkpoint, std::unique_ptr<StoredModel> base = nullptr);
  /// `model` was opened in `directory`. Throws Error(kInputData) if tokenizer.model or ripstop_prompt.json in
  /// `directory` is damaged.
  StoredModel(std::filesystem::path directory, PretrainedModel model);

  /// The directory of the checkpoint, or of the model of Hugging Face.
  const std::filesystem::path& directory() const { return directory_; }
  /// All facts about the model except its weights. For a model of Hugging Face: its sizes, the hash of its
  /// tokenizer.model, if any, a config to evaluate it with, step 0, and no data set.
  const CheckpointState& state() const { return state_; }
  const ModelConfig& config() const { return state_.model; }
  /// Whether this is a model of Hugging Face.
  bool is_pretrained() const { return checkpoint() == nullptr; }
  /// The open checkpoint; null for a model of Hugging Face.
  const Checkpoint* checkpoint() const { return std::get_if<Checkpoint>(&source_); }
  /// The open model of Hugging Face; null for a checkpoint.
  const PretrainedModel* pretrained() const { return std::get_if<PretrainedModel>(&source_); }
  /// The open base of a checkpoint of adapters (BaseChoice); else null.
  const StoredModel* base() const { return base_.get(); }

  /// A hash that tells models apart without reading whole files: for a checkpoint, a hash of its sidecars;
  /// for a model of Hugging Face, ripstop::samples_hash. Not collective. Throws Error(kStorage).
  std::string samples_hash() const;
  /// A hash of all weights. For a checkpoint, a hash of its sidecars, which have the hash of every block;
  /// later reads check the blocks. For a model of Hugging Face, contents_hash. Collective over `world`.
  /// Throws Error(kStorage).
  std::string weights_hash(
      Communicator& world, FunctionRef<void(int64_t percent)> watch = [](int64_t) {}) const;

 private:
  std::filesystem::path directory_;
  CheckpointState state_;
  std::variant<Checkpoint, PretrainedModel> source_;
  std::unique_ptr<StoredModel> base_;
};

}  // namespace ripstop
