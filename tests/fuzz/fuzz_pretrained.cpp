// The fuzz targets, one program for each kind of file: RIPSTOP_FUZZ_INPUT names the member of
// PretrainedInputs. An exception that leaves it ends the program, and libFuzzer keeps the input.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/pretrained_inputs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ripstop::PretrainedInputs inputs;
  inputs.RIPSTOP_FUZZ_INPUT(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
