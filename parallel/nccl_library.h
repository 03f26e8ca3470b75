// Functions of NCCL that depend on its version. The version at run time may differ from the one at compile
// time.
#pragma once
#include <nccl.h>

#include <cstdint>

#include "model/device/device.h"

namespace ripstop {

/// The configuration of a communicator whose calls return at once and which shares no resources with others.
/// `name` is its name in NCCL's logs; it must outlive the communicator. `beside_kernels`: its collectives run
/// beside the model's kernels and leave them room. They use few blocks of threads in small clusters, and none
/// at all if the copy engines can do the work (gathers of registered memory inside a node, NCCL 2.28 and
/// later). The environment variables NCCL_MAX_CTAS, NCCL_CGA_CLUSTER_SIZE and NCCL_CTA_POLICY override this.
ncclConfig_t nccl_config(const char* name, bool beside_kernels);

/// The source of memory that other ranks' GPUs can access: ncclMemAlloc. NCCL rounds a block up to pages of 2
/// MiB, or of up to 512 MiB if the memory goes through NVLink switches.
const MemorySource& nccl_memory();

/// Makes [data, data + bytes), memory of nccl_memory(), a symmetric window of the communicator. Collective;
/// all ranks give equal sizes. Whatever the call returns, NCCL writes *window from a thread of its own: keep
/// `window` alive and do not read it until the communicator reports success. *window is null if NCCL is older
/// than 2.27.3 at compile time or at run time. If the GPUs of the ranks do not reach each other's memory, it
/// is a plain registration or null.
ncclResult_t register_window(ncclComm_t comm, void* data, int64_t bytes, void** window);
ncclResult_t deregister_window(ncclComm_t comm, void* window);

}  // namespace ripstop
