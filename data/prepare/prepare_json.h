// prepare.json: what `ripstop prepare` was asked for, what it counted, and the hashes of the files it wrote.
#pragma once
#include <filesystem>
#include <string>

#include "data/prepare/prepare.h"

namespace ripstop {

/// Writes and syncs prepare.json in `directory`. The .h5 files of all splits must be complete there: their
/// hashes go into it. `prompt_template` is the one in force. Main thread only. Throws Error(kStorage).
void write_prepare_json(const std::filesystem::path& directory, const PrepareOptions& options,
                        const std::string& prompt_template, const PrepareReport& report);

}  // namespace ripstop
