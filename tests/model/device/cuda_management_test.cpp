// NVML by a stand-in of the library, tests/emulated_device/nvml.cpp.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "model/core/error.h"
#include "model/device/cuda_machine.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

std::string refusal() {
  return what_of([] { gpu_millijoules("0000:1b:00.0"); }, ExitCode::kResources);
}

TEST(Nvml, TellsTheEnergyOfAGpu) {
  ::setenv("RIPSTOP_EMULATED_NVML", "0 0 0 0 5000.25", 1);
  EXPECT_EQ(gpu_millijoules("0000:1b:00.0"), 5'000'250);
  // More than 32 bits: a GPU of 500 W takes so much in a year.
  ::setenv("RIPSTOP_EMULATED_NVML", "0 0 0 0 15768000000", 1);
  EXPECT_EQ(gpu_millijoules("0000:1b:00.0"), 15'768'000'000'000);
}

TEST(Nvml, AnOldGpuIsNoZero) {
  ::setenv("RIPSTOP_EMULATED_NVML", "0 0 0 0 -1", 1);
  EXPECT_EQ(refusal(), "GPU 0000:1b:00.0: NVML does not tell its energy, as before Volta");
}

TEST(Nvml, GpusAreComplainedOf) {
  CudaGpu gpu;
  gpu.name = "GPU", gpu.bus = "0000:1b:00.0";
  ::setenv("RIPSTOP_EMULATED_NVML", "0 3", 1);
  ASSERT_EQ(gpu_complaints(gpu).size(), 1U);
  EXPECT_EQ(gpu_complaints(gpu)[0],
            "GPU at 0000:1b:00.0 has had 3 uncorrected memory errors (ECC): reset or replace it");
}

// Runs without the stand-in. With a driver, it has no GPU at this address.
TEST(Nvml, DISABLED_IsNotOnEveryMachine) {
  EXPECT_EQ(refusal(), "GPU 0000:1b:00.0: the driver's NVML does not find it");
}

}  // namespace
}  // namespace ripstop
