// Writes prepare.json: the arguments and counts of `ripstop prepare`, and the hashes of the files that it
// made.
#pragma once
#include <filesystem>
#include <string>

#include "data/prepare/prepare.h"

namespace ripstop {

/// Hashes the .h5 files of all splits in `directory`, which must be complete, and writes and syncs
/// prepare.json beside them. `prompt_template` is the template that was used. Call it on the main thread
/// only. Throws Error(kStorage).
void write_prepare_json(const std::filesystem::path& directory, const PrepareOptions& options,
                        const std::string& prompt_template, const PrepareReport& report);

}  // namespace ripstop
