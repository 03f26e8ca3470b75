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

}  // namespace ripstop
