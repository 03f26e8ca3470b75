// StoredModel: a model in files, a checkpoint of ripstop or a directory of Hugging Face.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "data/files/io.h"
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
  /// What is known beside the weights. Of a Hugging Face model: its sizes, the hash of its tokenizer.model if
  /// it has one, and a config that evaluates it; step 0, and no data set.
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

  /// Overwrites the masters of `units` of parameter_table (shard fsdp_index of each) with the weights;
  /// padding becomes zero. Adapters are merged into them in float64 and rounded once. Moments stay as they
  /// are. Each rank reads only what it keeps; a model of Hugging Face with kBlockThreads threads, through 2
  /// MiB each. Not collective. Throws Error(kStorage) if the checkpoint is damaged, and as read_pretrained.
  void read(Io& io, int64_t fsdp_index, std::span<const UnitStates> units) const;

  /// Overwrites `to` with the elements [begin, end) of the flat buffer of `layout`, whose fsdp_count is 1, as
  /// `read` does. Of Hugging Face's models only. Several threads may call.
  void read_elements(const UnitLayout& layout, int64_t begin, int64_t end, float* to) const;

 private:
  std::string sidecars_hash() const;

  std::filesystem::path directory_;
  CheckpointState state_;
  std::variant<Checkpoint, PretrainedModel> source_;
  std::unique_ptr<StoredModel> base_;
};

/// The directory of the model that `path` names: itself if it is a model of Hugging Face, else the checkpoint
/// that find_checkpoint finds. Looks at directories only. Throws as find_checkpoint.
std::filesystem::path find_stored_model(Io& io, const std::filesystem::path& path, const std::string& which);

/// What open_stored_model does about the model under the adapters of a checkpoint.
struct BaseChoice {
  std::filesystem::path directory = {};  ///< the only place to look; empty: where it was
  /// false: it is not looked for unless `directory` is given. Then WeightsReader reads the adapters alone.
  bool is_needed = true;
};

/// Opens what find_stored_model found; reads manifest or headers. Throws Error(kStorage), with a hint, if the
/// checkpoint is damaged, superseded (Takeovers) or has other parameters than its model, and as
/// open_pretrained_model, and find_base for a checkpoint of adapters. Throws Error(kUsage) if the directory
/// of a base is given, and the model has no adapters.
StoredModel open_stored_model(Io& io, const std::filesystem::path& directory, const BaseChoice& base = {});

/// Reads the weights alone, unit by unit: fills `staging` with the unit's whole flat buffer (layouts of one
/// shard each) and calls `take`. `staging` holds the largest unit. If a rank fails, all throw. Collective
/// over `world`.
void load_weights(Io& io, const StoredModel& model, Communicator& world,
                  const std::vector<const UnitLayout*>& layouts, std::span<float> staging,
                  FunctionRef<void(size_t unit, std::span<const float> weights)> take);

}  // namespace ripstop
