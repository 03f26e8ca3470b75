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

/// Lists the ranks of up to four different texts: "rank 0 (node1): A; ranks 1-3 (node2, ...): B", then "; and
/// 2 more"; "" if all are equal. `texts` and `places` (the hosts) are indexed by rank.
std::string rank_groups_text(const std::vector<std::string>& texts, const std::vector<std::string>& places);

/// Throws Error(code) on all ranks unless `text` is the same on all ranks. The message names `what`, with
/// rank_groups_text(). `where`: this rank's host. Collective.
void require_equal(Communicator& world, ExitCode code, const std::string& what, const std::string& text,
                   const std::string& where, const std::string& hint);

/// Returns the values of all ranks of `group`, in rank order. Throws Error(kResources) if sizes of values
/// differ, because then ranks run different builds. Collective.
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

/// of_all_ranks() for lists. Throws Error(kBug) if their lengths differ. Collective.
template <class T>
std::vector<std::vector<T>> lists_of_all_ranks(Communicator& group, const std::vector<T>& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::vector<T>> lists;
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(T));
  for (const std::string& each : group.all_gather_text(bytes)) {
    RIPSTOP_CHECK(each.size() == bytes.size(), "lists of {} and {} bytes", each.size(), bytes.size());
    std::memcpy(lists.emplace_back(own).data(), each.data(), each.size());
  }
  return lists;
}

/// Returns the value of rank 0 on all ranks. Collective.
template <class T>
T of_rank_0(Communicator& world, const T& value) {
  return of_all_ranks(world, value).front();
}
/// Returns the text of rank 0 on all ranks. Collective.
std::string text_of_rank_0(Communicator& world, const std::string& text);

/// Returns, on all ranks, the smallest `number` of any rank. Collective.
int64_t least_of_all_ranks(Communicator& world, int64_t number);
/// Returns, on all ranks, whether `holds` is true on every rank. Collective.
bool all_ranks(Communicator& world, bool holds);
/// Returns, on all ranks, whether `holds` is true on at least one rank. Collective.
bool any_rank(Communicator& world, bool holds);

/// Runs body(), which must not call collectives, on each rank. If it throws on any rank, all ranks throw the
/// error of the lowest rank that failed. The message names that rank and how many others failed, or no rank
/// if all have the same error. An Error(kCommunication) of `body` is rethrown at once, because then other
/// ranks cannot be asked. Use it for work of single ranks, such as making a directory on rank 0. Collective.
void do_and_agree(Communicator& world, FunctionRef<void()> body);
/// do_and_agree() for work that rank 0 does alone. Collective.
void do_on_rank_0(Communicator& world, FunctionRef<void()> body);
/// do_on_rank_0() for a `body` that returns a text or number, which all ranks get. Collective.
template <class Body>
auto from_rank_0(Communicator& world, Body body) {
  decltype(body()) result{};
  do_on_rank_0(world, [&] { result = body(); });
  if constexpr (std::is_same_v<decltype(result), std::string>)
    return text_of_rank_0(world, result);
  else
    return of_rank_0(world, result);
}

}  // namespace ripstop
