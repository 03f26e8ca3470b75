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
  /// false: without `directory`, no base is opened, and WeightsReader reads the adapters alone.
  bool is_needed = true;
};

/// Opens the model that find_stored_model found; reads the manifest or the headers. Throws Error(kStorage),
/// with a hint, if the checkpoint is damaged, superseded (Takeovers) or has other parameters than its model;
/// Error(kUsage) if `base` names a directory and the model has no adapters; and as open_pretrained_model and
/// find_base.
StoredModel open_stored_model(Io& io, const std::filesystem::path& directory, const BaseChoice& base = {});

/// An open model and its run. No weights are read yet.
struct TrainedModel {
  StoredModel stored;
  std::filesystem::path run;  ///< directory of tokenizer.model; `stored.directory()` for Hugging Face
  RunConfig config;           ///< the config of the training

  const CheckpointState& state() const { return stored.state(); }
  /// The most tokens of prompt and summary together in the training.
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

/// The places where a resumed run looks for its base: where the base was, then model.pretrained of the config
/// (`pretrained_now`). If that differs from the checkpoint's config (`pretrained_then`), it is the only
/// place: the user has moved the base, and must get an error if another model is there.
std::vector<std::filesystem::path> places_of_base(const AdaptedBase& base, const std::string& pretrained_then,
                                                  const std::string& pretrained_now);

/// Opens the base of a checkpoint of adapters: the first of `places` that is a model with the hash
/// base.samples and the numbers of `sizes`, the checkpoint's model. max_position_embeddings and
/// initializer_range may differ. Reads headers and samples of weights; require_base_weights must follow. Not
/// collective. Throws Error(kInputData) that lists the findings if no place has the base: on other weights
/// the adapters would make another model. Throws Error(kStorage) instead if a place could not be read.
StoredModel find_base(Io& io, const AdaptedBase& base, const ModelConfig& sizes,
                      const std::vector<std::filesystem::path>& places);

/// Compares all weights of the base that find_base found with base.hash: StoredModel::weights_hash, which
/// calls `watch`. Collective over `world`. Throws Error(kInputData) if they differ.
void require_base_weights(
    Communicator& world, const StoredModel& found, const AdaptedBase& base,
    FunctionRef<void(int64_t percent)> watch = [](int64_t) {});

/// Calls require_base_weights for the base of `model`, the base of that base, and so on. Collective over
/// `world`. Throws as require_base_weights.
void require_bases(Communicator& world, const StoredModel& model);

/// Throws as find_base and require_base_weights unless `directory` has the base or an export of the base: a
/// model of Hugging Face of the same sizes, whose weights are rounded to its dtype. PEFT loads an export, and
/// no checkpoint of ripstop. Of an export three samples of each unit are compared with the base, which must
/// be where it was. Collective over `world`.
void require_base_or_export(Io& io, Communicator& world, const AdaptedBase& base, const ModelConfig& sizes,
                            const std::filesystem::path& directory);

}  // namespace ripstop
