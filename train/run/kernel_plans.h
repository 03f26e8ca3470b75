// Plans of library kernels, made before the first step.
#pragma once
#include <cstdint>
#include <map>

#include "data/dataset/sequence_reader.h"
#include "parallel/sharded_transformer.h"

namespace ripstop {

/// The number of batches with documents of each size: coming_documents.
using DocumentCounts = std::map<DocumentSizes, int64_t>;

/// The number of steps whose documents get plans. Later steps repeat their sizes.
inline constexpr int64_t kStepsLookedAt = 1000;

/// The result of prepare_kernels.
struct KernelPlans {
  int64_t count = 0;  ///< plans made
  int64_t left = 0;   ///< document sizes left, for lack of time, to the steps that have them
  double seconds = 0;
};

/// Makes the plans that `model` needs for batches of the documents in `trained` and `evaluated`, the most
/// frequent first, for about a minute at most. Does nothing on devices that need none.
KernelPlans prepare_kernels(const ShardedTransformer& model, const DocumentCounts& trained,
                            const DocumentCounts& evaluated);

}  // namespace ripstop
