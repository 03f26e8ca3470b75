// The op tests of tests/model on the emulated GPU: the entries of the CUDA back end's table, with cuBLASLt's
// and cuDNN's share.
#include "tests/model/op_test.h"

namespace ripstop {

std::vector<OpCase> op_cases() {
  return gpu_op_cases(/*slow=*/true);
}

}  // namespace ripstop
