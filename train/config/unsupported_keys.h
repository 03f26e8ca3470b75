// Keys that a config may have and this version of ripstop does not do.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "train/config/run_config.h"

namespace ripstop {

struct ConfigKey;

/// Who reads a config: train; train that resumes from the run's own config.toml, where an older version may
/// have stored a value that it did not do.
enum class ConfigReader { kTrain, kResume };

/// Throws Error(kUsage) if the config asks for something that this version does not do and that `reader`
/// would have to do. The error lists all such keys, each with its place and value, and the values to use
/// instead. `place` returns where a key is given, as in "run.toml:12"; it may return "".
void refuse_unsupported_keys(const RunConfig& config, ConfigReader reader,
                             const std::function<std::string(const ConfigKey&)>& place);

/// One note for each key whose value this version does not do.
std::vector<std::string> unsupported_key_notes(const RunConfig& config);

/// What to use instead of a value of `key` that this version does not do; "" if it does all of them.
std::string instead_of_unsupported(const ConfigKey& key);

/// Whether the value of `key` asks for something that this version does not do.
bool is_unsupported(const ConfigKey& key, const RunConfig& config);

}  // namespace ripstop
