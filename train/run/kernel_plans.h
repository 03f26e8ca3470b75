// Plans of libraries' kernels that are made before the first step instead of in it.
#pragma once
#include <cstdint>
#include <map>

#include "data/dataset/sequence_reader.h"
#include "parallel/sharded_transformer.h"

namespace ripstop {

/// How often batches have such documents: coming_documents.
using DocumentCounts = std::map<DocumentSizes, int64_t>;

/// Steps whose documents are looked at: their sizes come again and again after them.
inline constexpr int64_t kStepsLookedAt = 1000;

/// What prepare_kernels did.
struct KernelPlans {
  int64_t count = 0;  ///< plans made
  int64_t left = 0;   ///< document sizes for which there was no time: their plans are made when they come
  double seconds = 0;
};

/// Makes the plans that `model` needs for batches of the documents in `trained` and `evaluated`, the most
/// frequent first, for about a minute at most. Does nothing on devices that need none.
KernelPlans prepare_kernels(const ShardedTransformer& model, const DocumentCounts& trained,
                            const DocumentCounts& evaluated);

}  // namespace ripstop
