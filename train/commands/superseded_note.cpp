#include "train/commands/superseded_note.h"

#include <fmt/core.h>

#include <cstdio>

#include "model/core/error.h"
#include "train/checkpoint/find_run.h"

namespace ripstop {

void warn_of_superseded(Io& io, const std::filesystem::path& chosen) {
  try {
    for (const std::string& problem : newer_superseded(io, chosen))
      fmt::print(stderr, "warning: passing over a checkpoint: {}\n", problem);
  } catch (const Error&) {
  }
}

}  // namespace ripstop
