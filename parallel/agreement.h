// Agreement between ranks: on values that must be equal everywhere, and on failures that one rank meets
// alone.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "model/core/error.h"
#include "model/core/function_ref.h"
#include "parallel/communicator.h"

namespace ripstop {

/// Who has which text: "rank 0 (node1): A; ranks 1-3 (node2, ...): B", for at most four texts; "" if all are
/// the same. `texts` and `places` (hosts) by rank.
std::string rank_groups_text(const std::vector<std::string>& texts, const std::vector<std::string>& places);

/// Throws Error(code) on all ranks unless `text` is the same on all: a hash of the config, the program's
/// version, the instruction set of its kernels. The message lists the groups of ranks and the text of each;
/// `where` is this rank's host in it. Collective.
void require_equal(Communicator& world, ExitCode code, const std::string& what, const std::string& text,
                   const std::string& where, const std::string& hint);

/// The values of all ranks of `group`, in rank order. They travel as their bytes. Throws Error(kResources) if
/// a rank's value has another size. Collective.
template <class T>
std::vector<T> of_all_ranks(Communicator& group, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values;
  const std::string own(reinterpret_cast<const char*>(&value), sizeof value);
  for (const std::string& bytes : group.all_gather_text(own)) {
    if (bytes.size() != sizeof value)
      throw Error(
          ExitCode::kResources,
          fmt::format("a rank runs another program: it sent {} bytes, not {}", bytes.size(), sizeof value),
          "start the same build on every node");
    T each = value;
    std::memcpy(&each, bytes.data(), sizeof each);
    values.push_back(each);
  }
  return values;
}
inline std::vector<int64_t> all_gather_number(Communicator& group, int64_t number) {
  return of_all_ranks(group, number);
}

/// Rank 0's value, on all ranks. Collective.
template <class T>
T of_rank_0(Communicator& world, const T& value) {
  return of_all_ranks(world, value).front();
}
/// Rank 0's text, on all ranks. Collective.
std::string text_of_rank_0(Communicator& world, const std::string& text);

/// The least of the ranks' numbers, on all ranks. A decision that depends on facts of one machine, such as
/// its memory, must be the same everywhere. Collective.
int64_t least_of_all_ranks(Communicator& world, int64_t number);
/// Whether `holds` is true on all ranks, or on any of them; told to all ranks. Collective.
bool all_ranks(Communicator& world, bool holds);
bool any_rank(Communicator& world, bool holds);

/// The error of the exception that is being handled: itself if it is an Error. Call it in `catch (...)`.
Error current_error();

/// Runs `body`, which must not call collectives. If it throws on any rank, all ranks throw the same error:
/// that of the lowest failing rank, with its number and the count of other failing ranks (without both if all
/// failed alike). Use it for work that ranks do apart, such as making a directory on rank 0 or reading files,
/// so that a failure does not leave the other ranks waiting. Throws Error(kCommunication) of `body` on at
/// once, because after it no rank can be asked. Collective.
void do_and_agree(Communicator& world, FunctionRef<void()> body);

}  // namespace ripstop
