#pragma once
#include <filesystem>
#include <string>

#include "data/prepare/prepare.h"

namespace ripstop {

/// Writes and syncs prepare.json, with arguments, counts, and hashes of the complete .h5 files beside it.
/// `prompt_template` is the template that was used. Main thread only. Throws Error(kStorage).
void write_prepare_json(const std::filesystem::path& directory, const PrepareOptions& options,
                        const std::string& prompt_template, const PrepareReport& report);

}  // namespace ripstop
