#include "train/machine/equal_ranks.h"

#include "model/kernels/cpu/processor.h"
#include "parallel/agreement.h"
#include "train/machine/version.h"

namespace ripstop {

void require_equal_programs(Communicator& world, const std::string& where) {
  require_equal(world, ExitCode::kResources, "program", fmt::format("{} {}", version(), git_commit()), where,
                "start the same build on every node");
  require_equal(world, ExitCode::kResources, "instruction set", cpu_instruction_set(), where,
                "use nodes of one kind");
}

}  // namespace ripstop
