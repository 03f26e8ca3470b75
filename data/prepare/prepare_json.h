#pragma once
#include <filesystem>
#include <string>

#include "data/prepare/prepare.h"

namespace ripstop {

/// Writes and syncs prepare.json, with arguments, counts, and hashes of the finished .h5 files beside it.
/// `prompt_template` and `choice`: those that prepare() used. Main thread only. Throws Error(kStorage).
void write_prepare_json(const std::filesystem::path& directory, const PrepareOptions& options,
                        const std::string& prompt_template, const TokenizerChoice& choice,
                        const PrepareReport& report);

}  // namespace ripstop
