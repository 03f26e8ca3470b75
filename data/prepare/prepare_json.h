// prepare.json: the arguments and counts of `ripstop prepare`, and the hashes of its files.
#pragma once
#include <filesystem>
#include <string>

#include "data/prepare/prepare.h"

namespace ripstop {

/// Writes and syncs prepare.json in `directory`, where the .h5 files of all splits must be complete: it
/// hashes them. `prompt_template` is the one in use. Main thread only. Throws Error(kStorage).
void write_prepare_json(const std::filesystem::path& directory, const PrepareOptions& options,
                        const std::string& prompt_template, const PrepareReport& report);

}  // namespace ripstop
