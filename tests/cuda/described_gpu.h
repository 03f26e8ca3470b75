// GPUs that cuDNN makes plans for without having them.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace ripstop {

/// The properties that cuDNN's engines read, from NVIDIA's data sheets and tuning guides.
struct DescribedGpu {
  const char* name;
  int major, minor;
  int64_t processors, shared_bytes, level2_bytes, clock_khz, memory_khz, bus_bits, memory_bytes;
  int64_t processor_threads = 2048, processor_blocks = 32;

  /// The text that device_properties() in cudnn_graph.h takes.
  std::string json() const {
    return fmt::format(
        R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
        R"("multiProcessorCount":{},"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
        R"("maxSharedMemoryPerBlockOptin":{},"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
        R"("maxCtasPerSM":{},"maxThreadsPerBlock":1024,"maxThreadsPerSM":{},"pciDeviceId":0,"isTccDriver":0,)"
        R"("supportCoopLaunch":1,"totalGlobalMem":{},"smClockRateKHz":{},"memClockRateKHz":{},"memoryBusWidth":{},)"
        R"("l2CacheSize":{},"cudaDeviceId":0,"deviceVer":{},"driverVer":13000,"deviceName":"{}"}})",
        processors, shared_bytes, processor_blocks, processor_threads, memory_bytes, clock_khz, memory_khz,
        bus_bits, level2_bytes, 100 * major + 10 * minor, name);
  }
};

inline constexpr DescribedGpu kA100{
    "NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912, 41943040, 1410000, 1593000, 5120, 85097971712};
inline constexpr DescribedGpu kH100{
    "NVIDIA H100 80GB HBM3", 9, 0, 132, 232448, 52428800, 1980000, 2619000, 5120, 84942979072};
inline constexpr DescribedGpu kL40S{"NVIDIA L40S", 8,       9,   142,         101376, 100663296,
                                    2520000,       9001000, 384, 47697362944, 1536,   24};
inline constexpr DescribedGpu kB200{"NVIDIA B200", 10,      0,       148,  232448,
                                    132644864,     1965000, 3996000, 8192, 191503269888};
inline constexpr DescribedGpu kRtxPro6000{"NVIDIA RTX PRO 6000 Blackwell Server Edition",
                                          12,
                                          0,
                                          188,
                                          101376,
                                          134217728,
                                          2430000,
                                          14001000,
                                          512,
                                          101973950464,
                                          1536,
                                          24};

}  // namespace ripstop
