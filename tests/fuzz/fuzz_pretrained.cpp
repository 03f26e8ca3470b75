// The fuzz targets, one program for each kind of file: RIPSTOP_FUZZ_INPUT names the member of
// RIPSTOP_FUZZ_CLASS. An exception that leaves it ends the program, and libFuzzer keeps the input.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/torch_inputs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ripstop::RIPSTOP_FUZZ_CLASS inputs;
  inputs.RIPSTOP_FUZZ_INPUT(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
