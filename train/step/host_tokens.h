// From the loader's batch to the model's.
#pragma once
#include "data/batch_loader.h"
#include "model/batch.h"

namespace ripstop {

/// A view of `batch`, as the model takes it.
inline HostTokens host_tokens(const PackedBatch& batch) {
  return {batch.tokens, batch.position, batch.targets, batch.document_offset};
}

}  // namespace ripstop
