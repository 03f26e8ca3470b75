// Functions of NCCL that depend on its version, which may differ between compile time and run time.
#pragma once
#include <nccl.h>

#include <cstdint>

#include "model/device/device.h"

namespace ripstop {

/// Configures a communicator whose calls return at once and which shares no resources. `name`, for NCCL's
/// logs, must outlive the communicator. `beside_kernels`: collectives leave room for the model's kernels:
/// they use few thread blocks in small clusters, or no blocks if the copy engines can do the work (gathers of
/// registered memory inside a node, NCCL 2.28 and later). The variables NCCL_MAX_CTAS, NCCL_CGA_CLUSTER_SIZE
/// and NCCL_CTA_POLICY override `beside_kernels`.
ncclConfig_t nccl_config(const char* name, bool beside_kernels);

/// Memory of ncclMemAlloc, which other ranks' GPUs can access. Blocks are rounded up to pages of 2 MiB, or of
/// up to 512 MiB with NVLink switches.
const MemorySource& nccl_memory();

/// Makes [data, data + bytes) of nccl_memory() a symmetric window. A thread of NCCL writes *window: keep
/// `window` alive and unread until the communicator reports success. *window is null if NCCL is older than
/// 2.27.3 at compile time or run time. If the ranks' GPUs do not reach each other's memory, *window is a
/// plain registration or null. Collective; all ranks give equal sizes.
ncclResult_t register_window(ncclComm_t comm, void* data, int64_t bytes, void** window);
ncclResult_t deregister_window(ncclComm_t comm, void* window);

}  // namespace ripstop
