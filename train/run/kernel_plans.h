// Plans of libraries' kernels, made before the first step instead of in it.
#pragma once
#include <cstdint>
#include <map>

#include "data/dataset/sequence_reader.h"
#include "parallel/sharded_transformer.h"

namespace ripstop {

/// The number of batches with documents of each size: coming_documents.
using DocumentCounts = std::map<DocumentSizes, int64_t>;

/// Steps whose documents are looked at: the sizes come again and again after them.
inline constexpr int64_t kStepsLookedAt = 1000;

/// The work of prepare_kernels.
struct KernelPlans {
  int64_t count = 0;  ///< plans made
  int64_t left = 0;   ///< document sizes without a plan, for lack of time: made in the steps that meet them
  double seconds = 0;
};

/// Makes the plans that `model` needs for batches of the documents in `trained` and `evaluated`, the most
/// frequent first, for about a minute at most. Does nothing on devices that need none.
KernelPlans prepare_kernels(const ShardedTransformer& model, const DocumentCounts& trained,
                            const DocumentCounts& evaluated);

}  // namespace ripstop
