// Agreement of all ranks on values, and on the failure of one rank.
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

/// The ranks of each text: "rank 0 (node1): A; ranks 1-3 (node2, ...): B", for at most four texts; "" if all
/// texts are the same. `texts` and `places` (hosts) are by rank.
std::string rank_groups_text(const std::vector<std::string>& texts, const std::vector<std::string>& places);

/// Throws Error(code) on all ranks unless `text`, such as a hash of the config, is the same on all. The
/// message names `what` and lists the ranks of each text; `where` is this rank's host. Collective.
void require_equal(Communicator& world, ExitCode code, const std::string& what, const std::string& text,
                   const std::string& where, const std::string& hint);

/// The values of all ranks of `group`, in rank order, sent as bytes. Throws Error(kResources) if a rank's
/// value has another size, which another build may have. Collective.
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

/// Rank 0's value, on all ranks. Collective.
template <class T>
T of_rank_0(Communicator& world, const T& value) {
  return of_all_ranks(world, value).front();
}
/// Rank 0's text, on all ranks. Collective.
std::string text_of_rank_0(Communicator& world, const std::string& text);

/// The smallest number of all ranks, on all ranks: for decisions that depend on facts of one machine, such as
/// its memory, and must be the same everywhere. Collective.
int64_t least_of_all_ranks(Communicator& world, int64_t number);
/// Whether `holds` is true on all ranks, or on any rank. All ranks get the same answer. Collective.
bool all_ranks(Communicator& world, bool holds);
bool any_rank(Communicator& world, bool holds);

/// The exception being handled, as an Error. Call it in `catch (...)`.
Error current_error();

/// Runs `body`, which must not call collectives. If it throws on any rank, all ranks throw the error of the
/// lowest failing rank, with the rank and the number of other failing ranks (without both if all ranks have
/// the same error). For work that ranks do alone, such as making a directory on rank 0: a failure then leaves
/// no rank waiting. An Error(kCommunication) of `body` is rethrown at once, because then no rank can be
/// asked. Collective.
void do_and_agree(Communicator& world, FunctionRef<void()> body);

}  // namespace ripstop
