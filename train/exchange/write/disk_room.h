// Whether the disk has room for what will be written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "data/files/io.h"

namespace ripstop {

/// Throws Error(kStorage), with the numbers and `hint`, if the disk of `folder` has less than `bytes` free.
/// `what_needs`: "the export needs", for the message.
void require_room(Io& io, const std::filesystem::path& folder, int64_t bytes, const std::string& what_needs,
                  const std::string& hint);

}  // namespace ripstop
