// ripstop checkpoint export, which runs on all ranks.
#pragma once
#include "train/commands/command_line.h"

namespace ripstop {

/// Adds `export` to the verbs of `checkpoint`.
void add_checkpoint_export(Verb& checkpoint);

}  // namespace ripstop
