#pragma once
#include <cstdint>

#include "model/parameter.h"

namespace ripstop {

/// out[0 .. count) = the initial values of logical elements [first, first + count) (row-major) of a
/// parameter, as ParameterSpec::initial says. Elements 2i and 2i + 1 come from one Philox block
/// (model/core/philox.h): its key is `seed`, its counter is i and the hash of the parameter's name.
/// Box-Muller makes normal values. May use all threads.
void initial_values(const ParameterSpec& parameter, uint64_t seed, int64_t first, int64_t count, float* out);
using InitialValues = decltype(&initial_values);

}  // namespace ripstop
