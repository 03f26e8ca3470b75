// What depends on the version of NCCL. The one that runs may be another than the one that was compiled
// against.
#pragma once
#include <nccl.h>

#include <cstdint>

#include "model/device/device.h"

namespace ripstop {

/// How a communicator is made: its calls return at once, and it shares nothing with others. `name` is what
/// NCCL's logs call it, and stays where it is as long as the communicator. `beside_kernels`: its collectives
/// run beside the model's kernels and leave them room: few blocks of threads, in small clusters, and none at
/// all where the copy engines can do the work (gathers of registered memory inside a node, NCCL 2.28 and
/// later). NCCL's variables NCCL_MAX_CTAS, NCCL_CGA_CLUSTER_SIZE and NCCL_CTA_POLICY are stronger.
ncclConfig_t nccl_config(const char* name, bool beside_kernels);

/// Memory that other ranks' GPUs can be given access to: ncclMemAlloc's. NCCL rounds a block up to the pages
/// of such memory, 2 MiB, and up to 512 MiB where it goes through NVLink switches.
const MemorySource& nccl_memory();

/// Makes [data, data + bytes) of nccl_memory() a symmetric window of the communicator: collective, with equal
/// sizes, and to be checked as every call of NCCL. `window` is null afterwards where there are none: where
/// NCCL was before 2.27.3 when this was compiled or is now, and where the ranks' GPUs do not reach each
/// other's memory.
ncclResult_t register_window(ncclComm_t comm, void* data, int64_t bytes, void** window);
ncclResult_t deregister_window(ncclComm_t comm, void* window);

}  // namespace ripstop
