// ripstop checkpoint import.
#pragma once
#include "train/commands/command_line.h"

namespace ripstop {

/// Adds `import` to the verbs of `checkpoint`.
void add_checkpoint_import(Verb& checkpoint);

}  // namespace ripstop
