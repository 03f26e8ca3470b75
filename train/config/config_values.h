// A value of a config, checked against the row of its key.
#pragma once
#include "train/config/config_entries.h"

namespace ripstop {

/// Writes the entry's value into its field of `config`. Throws Error(kUsage) with the place, what is expected
/// and what was found, if the value has a wrong type or is outside its range. The hint is the line to write,
/// if the value shows which one is meant: `compute = "bfloat16"` for "bf16".
void assign_value(const ConfigEntry& entry, RunConfig& config);

}  // namespace ripstop
