// Texts that replicas make in turn: replica r of R makes texts r, r + R, r + 2R, ...
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace ripstop {

/// Puts together what the replicas made. `own` are this rank's texts, the same on the `tensor` ranks of its
/// replica (ranks of `world` in mesh order: tensor fastest). Replicas have equally many texts, or the first
/// ones one more. All ranks call, and get all texts in order. Throws Error(kCommunication).
std::vector<std::string> gather_dealt(Communicator& world, int64_t tensor,
                                      const std::vector<std::string>& own);

/// The same without communication: `replicas` are the texts of each, as `packed`.
std::vector<std::string> merge_dealt(const std::vector<std::string>& replicas);

/// Texts as one text.
std::string packed(const std::vector<std::string>& texts);

}  // namespace ripstop
