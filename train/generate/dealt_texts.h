// Texts that replicas make in turn: replica r of R makes the texts r, r + R, r + 2R, ...
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace ripstop {

/// Gathers the texts of all replicas, in order, on every rank. `own` are this rank's texts, equal on the
/// `tensor` ranks of its replica (ranks of `world` in mesh order: tensor fastest). All replicas have equally
/// many texts, or the first ones have one more. Collective. Throws Error(kCommunication).
std::vector<std::string> gather_dealt(Communicator& world, int64_t tensor,
                                      const std::vector<std::string>& own);

/// The same without communication. `replicas` are the texts of each replica, as `packed` returns them.
std::vector<std::string> merge_dealt(const std::vector<std::string>& replicas);

/// The texts as one text, from which merge_dealt gets them back: for each its length in bytes, a colon,
/// itself.
std::string packed(const std::vector<std::string>& texts);

}  // namespace ripstop
