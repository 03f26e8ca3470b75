// Agreement: one rank's failure becomes every rank's, with the same words.
#pragma once
#include <string>

#include "model/function_ref.h"
#include "parallel/communicator.h"

namespace ripstop {

/// Runs `body`; returns how it failed, as a text for `agree`, or nothing where it did not. Communication
/// errors are thrown on: after one nobody can be asked.
std::string failure_of(FunctionRef<void()> body);

/// Collective: where any rank's `failure` (of failure_of) is not empty, throws the same Error on all: that of
/// the first rank that failed, with its number, and how many others did.
void agree(Communicator& world, const std::string& failure);

/// Collective: rank 0's text.
std::string text_of_rank_0(Communicator& world, const std::string& text);

}  // namespace ripstop
