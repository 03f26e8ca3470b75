// ripstop checkpoint inspect.
#pragma once
#include "train/commands/command_line.h"

namespace ripstop {

/// Adds the verb below `checkpoint`.
void add_checkpoint_inspect(Verb& checkpoint);

}  // namespace ripstop
