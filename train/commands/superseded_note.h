// A warning of the verbs that choose one of a run's checkpoints.
#pragma once
#include <filesystem>

#include "data/files/io.h"

namespace ripstop {

/// Warns on standard error of each checkpoint that is newer than `chosen` and was passed over because it is
/// superseded (newer_superseded). What cannot be listed is no reason to stop: it warns of nothing then.
void warn_of_superseded(Io& io, const std::filesystem::path& chosen);

}  // namespace ripstop
