// From a path to an open model: which checkpoint or directory of Hugging Face it names, the model under its
// adapters, the run that it belongs to.
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

/// The directory of the model that `path` names: itself if it is a model of Hugging Face, else the checkpoint
/// that find_checkpoint finds. Looks at directories only. Throws as find_checkpoint.
std::filesystem::path find_stored_model(Io& io, const std::filesystem::path& path, const std::string& which);

/// Where open_stored_model looks for the model under the adapters of a checkpoint.
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

/// A model in files and the run that it belongs to. No weights are read yet.
struct TrainedModel {
  StoredModel stored;
  std::filesystem::path run;  ///< holds tokenizer.model; Hugging Face's directory if it is a model of theirs
  RunConfig config;           ///< the config of the training

  const CheckpointState& state() const { return stored.state(); }
  /// Tokens of prompt and summary together in the training, at most.
  int64_t context() const;
};

/// Finds the model that `path` (a run, a checkpoint or a model of Hugging Face) and `which` name, as
/// find_stored_model() does. `overrides` ("generation.key=value") are stronger than the config of the
/// training. `base`: of a checkpoint of adapters. Rank 0 looks, and all ranks get the same. Collective.
/// Throws as find_stored_model and open_stored_model.
TrainedModel find_trained_model(Io& io, Communicator& world, const std::string& path,
                                const std::string& which, const BaseChoice& base = {},
                                std::span<const std::string> overrides = {});

/// `path` as manifests and messages have it: absolute, without "." and "..", and without a "/" at the end.
std::filesystem::path normal_path(const std::filesystem::path& path);

/// Where a run that goes on looks for its base: where it was, and then at model.pretrained of its config. If
/// that names another place than the config of the checkpoint did, it looks there alone: the user has moved
/// the base, and must hear of it if another model is there.
std::vector<std::filesystem::path> places_of_base(const AdaptedBase& base, const std::string& pretrained_then,
                                                  const std::string& pretrained_now);

/// Opens the base of a checkpoint of adapters: the first of `places` that is a model with the hash
/// base.samples and the numbers of `sizes`, the model of the checkpoint: its maximum position and
/// initializer_range may be others. Reads headers and samples of weights; require_base_weights must follow.
/// Not collective. Throws Error(kInputData) that lists what was found there if none is: adapters beside other
/// weights than those that they were trained with would be another model. Throws Error(kStorage) instead if a
/// place could not be read.
StoredModel find_base(Io& io, const AdaptedBase& base, const ModelConfig& sizes,
                      const std::vector<std::filesystem::path>& places);

/// Compares all weights of the base that find_base found with base.hash. Of a model of Hugging Face each rank
/// reads its part of the bytes, where it sees the files; those of a checkpoint are compared when they are
/// read. `watch` is called as by contents_hash. Collective over `world`.
/// Throws Error(kInputData) if they are others.
void require_base_weights(
    Communicator& world, const StoredModel& found, const AdaptedBase& base,
    FunctionRef<void(int64_t percent)> watch = [](int64_t) {});

/// require_base_weights for the base of `model`, and for what lies under that; none if it has no base.
/// Collective over `world`. Throws as require_base_weights.
void require_bases(Communicator& world, const StoredModel& model);

/// Returns if `directory` has the base, as find_base and require_base_weights know it, or an export of it: a
/// model of Hugging Face of the same sizes with the same weights, rounded to its dtype. PEFT, which reads no
/// checkpoint of ripstop, loads that one. Of an export three samples of each unit are compared, and for that
/// the base must be where it was. Collective over `world`. Throws as find_base and require_base_weights.
void require_base_or_export(Io& io, Communicator& world, const AdaptedBase& base, const ModelConfig& sizes,
                            const std::filesystem::path& directory);

}  // namespace ripstop
