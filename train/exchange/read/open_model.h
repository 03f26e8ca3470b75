// Opens the model at a path: finds the checkpoint or directory of Hugging Face, the model under its adapters
// (their base), and its run.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "train/config/run_config.h"
#include "train/exchange/read/stored_model.h"

namespace ripstop {

/// Returns `path` if it is a model of Hugging Face, else the checkpoint that find_checkpoint finds. Opens no
/// file. Throws as find_checkpoint.
std::filesystem::path find_stored_model(Io& io, const std::filesystem::path& path, const std::string& which);

/// Where open_stored_model looks for the base of a checkpoint of adapters.
struct BaseChoice {
  std::filesystem::path directory = {};  ///< the only place to look; empty: where the base was in training
  /// If false and `directory` is empty, no base is opened, and WeightsReader reads the adapters alone.
  bool is_needed = true;
};

/// Opens the model that find_stored_model found; reads the manifest or the headers.
/// Throws Error(kStorage), with a hint, if the checkpoint is damaged, superseded (Takeovers) or has other
/// parameters than its model.
/// Throws Error(kUsage) if `base` names a directory and the model has no adapters.
/// Throws what open_pretrained_model and find_base throw.
StoredModel open_stored_model(Io& io, const std::filesystem::path& directory, const BaseChoice& base = {});

/// An open model and its run. No weights are read yet.
struct TrainedModel {
  StoredModel stored;
  /// Directory of tokenizer.model; for a model of Hugging Face, `stored.directory()`.
  std::filesystem::path run;
  RunConfig config;  ///< the config of the training

  const CheckpointState& state() const { return stored.state(); }
  /// The most tokens that prompt and summary together had in training.
  int64_t context() const;
};

/// Opens the model that find_stored_model finds for `path` and `which`. `overrides` ("generation.key=value")
/// replace values in the config of the training. Rank 0 looks for the model; all ranks open the same one.
/// Collective. Throws as find_stored_model and open_stored_model.
TrainedModel find_trained_model(Io& io, Communicator& world, const std::string& path,
                                const std::string& which, const BaseChoice& base = {},
                                std::span<const std::string> overrides = {});

/// `path` absolute, without "." and "..", and without a "/" at the end.
std::filesystem::path normal_path(const std::filesystem::path& path);

/// The places where a resumed run looks for its base: the directory where the base was, then
/// `pretrained_now`, which is model.pretrained of the run's config. If `pretrained_now` differs from
/// `pretrained_then`, which is model.pretrained of the checkpoint's config, it is the only place: the user
/// has moved the base, and must get an error if another model is there.
std::vector<std::filesystem::path> places_of_base(const AdaptedBase& base, const std::string& pretrained_then,
                                                  const std::string& pretrained_now);

/// Opens the base of a checkpoint of adapters: the first of `places` with a model whose samples_hash() is
/// base.samples and whose config is `sizes`, the config of the checkpoint's model, except for
/// max_position_embeddings and initializer_range. Reads headers and samples of weights; the caller must call
/// require_base_weights afterwards. Not collective.
/// Throws Error(kInputData), with the finding at each place, if no place has the base: on other weights the
/// adapters would make another model.
/// Throws Error(kStorage) instead if a place could not be read.
StoredModel find_base(Io& io, const AdaptedBase& base, const ModelConfig& sizes,
                      const std::vector<std::filesystem::path>& places);

/// Throws Error(kInputData) unless the hash of all weights of `found`, the result of find_base, is base.hash.
/// StoredModel::weights_hash computes it and calls `watch`. Collective over `world`.
void require_base_weights(
    Communicator& world, const StoredModel& found, const AdaptedBase& base,
    FunctionRef<void(int64_t percent)> watch = [](int64_t) {});

/// Calls require_base_weights for the base of `model`, the base of that base, and so on. Collective over
/// `world`. Throws what require_base_weights throws.
void require_bases(Communicator& world, const StoredModel& model);

/// Throws unless `directory` has the base or an export of the base: a model of Hugging Face of the same
/// sizes, with the weights of the base rounded to the dtype of the export. PEFT can load an export, but no
/// checkpoint of ripstop. Compares three samples of each unit of an export with the base, which must be where
/// it was in training. Throws the errors of find_base and require_base_weights. Collective over `world`.
void require_base_or_export(Io& io, Communicator& world, const AdaptedBase& base, const ModelConfig& sizes,
                            const std::filesystem::path& directory);

}  // namespace ripstop
