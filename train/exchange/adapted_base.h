// The frozen model under the adapters of a checkpoint.
#pragma once
#include <filesystem>
#include <vector>

#include "data/io.h"
#include "train/exchange/stored_model.h"

namespace ripstop {

/// Opens the base of a checkpoint of adapters: the first of `places` that is a model with the hash base.hash.
/// Reads headers and samples of weights. Not collective. Throws Error(kInputData) that lists what was found
/// there if none is: adapters beside other weights than those that they were trained with would be another
/// model.
StoredModel find_base(Io& io, const AdaptedBase& base, const std::vector<std::filesystem::path>& places);

/// Returns if `directory` has the base, as find_base knows it, or an export of it: a model of Hugging Face of
/// the same sizes with the same weights, rounded to its dtype. PEFT, which reads no checkpoint of ripstop,
/// loads that one. Three samples of each unit are compared, and for that the base must be where it was. Not
/// collective. Throws as find_base.
void require_base_or_export(Io& io, const AdaptedBase& base, const std::filesystem::path& directory);

}  // namespace ripstop
