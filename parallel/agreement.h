// Agreement between ranks: on what must be the same everywhere, and on failures that one of them meets alone.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/core/function_ref.h"
#include "parallel/communicator.h"

namespace ripstop {

/// Throws Error(code) on all ranks, with the groups of ranks and what each has, unless `text` is the same on
/// all: a hash of the config, the program's version, the instruction set its kernels use. All ranks call.
/// `where` names this rank's host in the message.
void require_equal(Communicator& world, ExitCode code, const std::string& what, const std::string& text,
                   const std::string& where, const std::string& hint);

/// The numbers of all ranks of `group`, in rank order. All ranks call.
std::vector<int64_t> all_gather_number(Communicator& group, int64_t number);

/// The least of the ranks' numbers, on all of them: what is decided from facts of one machine (its memory)
/// must be decided alike everywhere. All ranks call.
int64_t least_of_all_ranks(Communicator& world, int64_t number);

/// Rank 0's text, on all ranks. All ranks call.
std::string text_of_rank_0(Communicator& world, const std::string& text);

/// Runs `body`, which has no collectives. Where it throws on any rank, all throw the same: the error of the
/// lowest such rank, with its number, and how many others failed; without either where all failed alike. All
/// ranks call. What only some ranks do (rank 0 makes a directory, each reads its file) is done in here, so
/// that a failure does not leave the others waiting. Error(kCommunication) is thrown on at once: after one
/// nobody can be asked.
void do_and_agree(Communicator& world, FunctionRef<void()> body);

}  // namespace ripstop
