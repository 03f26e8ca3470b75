#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "model/core/function_ref.h"
#include "parallel/communicator.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/read/grown_tables.h"

namespace ripstop {

/// A checkpoint or a Hugging Face model, readable into any mesh. A checkpoint of adapters, with its base,
/// counts as the merged model. Holds no weights. Can be moved, not copied.
class StoredModel {
 public:
  /// `base`: the model under the checkpoint's adapters, if it is needed; else null.
  explicit StoredModel(Checkpoint checkpoint, std::unique_ptr<StoredModel> base = nullptr);
  /// Throws Error(kInputData) if tokenizer.model or ripstop_prompt.json in `directory` is damaged, and what
  /// read_end_tokens throws.
  StoredModel(std::filesystem::path directory, PretrainedModel model);

  const std::filesystem::path& directory() const { return directory_; }
  /// All facts about the model except its weights. For a Hugging Face model: its sizes, the hash of its
  /// tokenizer, if any, a config to evaluate it with, end tokens included, step 0, and no data set.
  const CheckpointState& state() const { return state_; }
  const ModelConfig& config() const { return state_.model; }
  /// Whether this is a Hugging Face model.
  bool is_pretrained() const { return checkpoint() == nullptr; }
  /// Null for a Hugging Face model.
  const Checkpoint* checkpoint() const { return std::get_if<Checkpoint>(&source_); }
  /// Null for a checkpoint.
  const PretrainedModel* pretrained() const { return std::get_if<PretrainedModel>(&source_); }
  /// Initial values of vocabulary rows that a unit has and this model lacks; set before such a unit is read.
  const VocabularyGrowth& growth() const { return growth_; }
  void set_growth(const VocabularyGrowth& growth) { growth_ = growth; }
  /// The open base of a checkpoint of adapters (BaseChoice); else null.
  const StoredModel* base() const { return base_.get(); }

  /// Notes for people on the files of this model and of its base.
  std::vector<std::string> notes() const;

  /// A hash that tells models apart without reading all bytes: of a checkpoint's sidecars, or
  /// ripstop::samples_hash. Not collective. Throws Error(kStorage).
  std::string samples_hash() const;
  /// A hash of all weights: over a checkpoint's sidecars, which hash every block (later reads check the
  /// blocks), or contents_hash. Collective over `world`. Throws what contents_hash throws.
  std::string weights_hash(
      Communicator& world, FunctionRef<void(int64_t percent)> watch = [](int64_t) {}) const;

 private:
  std::filesystem::path directory_;
  CheckpointState state_;
  std::variant<Checkpoint, PretrainedModel> source_;
  std::unique_ptr<StoredModel> base_;
  VocabularyGrowth growth_;
};

}  // namespace ripstop
