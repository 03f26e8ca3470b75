// The fuzz target of tokenizer.json. An exception that leaves it ends the program, and libFuzzer keeps the
// input.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/tokenizer_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ripstop::try_tokenizer_json(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
