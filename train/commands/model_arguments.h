// What evaluate and summarize ask alike.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace ripstop {

/// Which trained model, and how it writes.
struct ModelArguments {
  std::string path;
  std::string checkpoint = "best";
  int64_t max_new_tokens = 0;  ///< 0: the config's
  int64_t batch_size = 0;

  /// Binds the options to `app`; `batch` is --batch-size where it is not given.
  void add_to(CLI::App& app, int64_t batch);
};

}  // namespace ripstop
