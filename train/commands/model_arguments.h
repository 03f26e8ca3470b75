// Options that evaluate and summarize share.
#pragma once
#include <cstdint>
#include <string>

#include "train/commands/command_line.h"

namespace ripstop {

/// Which trained model to take, and how it writes summaries.
struct ModelArguments {
  std::string path;
  std::string checkpoint = "best";
  int64_t max_new_tokens = 0;  ///< 0: the config's
  int64_t batch_size = 0;

  /// Adds the options to `verb`; `batch` is the default of --batch-size.
  void add_to(Verb& verb, int64_t batch);
};

}  // namespace ripstop
