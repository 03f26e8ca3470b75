// The smallest config, changed line by line, for the tests of train/config.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/core/error.h"
#include "tests/expect_error.h"
#include "train/config/run_config.h"

namespace ripstop::small_config {

/// A config with only the required keys.
inline constexpr const char* kSmallest = R"(
[run]
directory = "runs/a"
[model]
preset = "15m"
[data]
directory = "data/a"
sequence_length = 256
[train]
steps = 100
global_batch_sequences = 8
[optimizer]
learning_rate = 1e-3
)";

inline RunConfig parsed(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  return parse_run_config(toml, "x.toml", overrides);
}

/// The error that refuses a config, maybe of several lines; kOk if it is accepted.
inline Error refusal(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  return error_of([&] { parsed(toml, overrides); });
}

/// The smallest config with one line replaced, or added to its section if no line has its key.
inline std::string with(const std::string& section, const std::string& line) {
  std::string toml = kSmallest;
  const std::string name = line.substr(0, line.find_first_of(" ="));
  const size_t begin = toml.find("[" + section + "]");
  if (begin == std::string::npos) return toml + "[" + section + "]\n" + line + "\n";
  const size_t end = std::min(toml.find("\n[", begin), toml.size());
  const size_t old = toml.find("\n" + name + " =", begin);
  if (old != std::string::npos && old < end) {
    toml.replace(old + 1, toml.find('\n', old + 1) - old - 1, line);
  } else {
    toml.insert(begin + section.size() + 3, line + "\n");
  }
  return toml;
}

inline void expect_usage(const Error& refusal, const std::string& what, const std::string& hint = "") {
  expect_error(refusal, ExitCode::kUsage, what, hint);
}

}  // namespace ripstop::small_config
