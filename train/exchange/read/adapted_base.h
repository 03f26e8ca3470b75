// The frozen model under the adapters of a checkpoint.
#pragma once
#include <filesystem>
#include <vector>

#include "data/files/io.h"
#include "train/exchange/read/stored_model.h"

namespace ripstop {

/// `path` as manifests and messages have it, whichever way a user writes it: absolute, without "." and "..",
/// and without a "/" at the end.
std::filesystem::path place_of_base(const std::filesystem::path& path);

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
