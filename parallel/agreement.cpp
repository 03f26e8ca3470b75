#include "parallel/agreement.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>

#include "parallel/rank_names.h"

namespace ripstop {
namespace {

struct RankGroup {
  std::string text;
  std::vector<int64_t> ranks;
  std::string where;  // the host of the group's first rank
};

// Returns "CODE LENGTH " with the message, of LENGTH bytes, and the hint behind it; "" without an error.
std::string to_text(const std::optional<Error>& error) {
  if (!error) return "";
  const std::string what = error->what();
  return fmt::format("{} {} {}{}", static_cast<int>(error->code()), what.size(), what, error->hint());
}

// Parses the result of to_text(), and puts `before` and `after` around the message.
Error from_text(const std::string& text, const std::string& before, const std::string& after) {
  std::istringstream words(text);
  int code = 0;
  size_t bytes = 0;
  if (!(words >> code >> bytes)) return {ExitCode::kBug, "a rank failed without saying how: " + text};
  const auto begin = static_cast<size_t>(words.tellg()) + 1;
  return {static_cast<ExitCode>(code), before + text.substr(begin, bytes) + after,
          text.substr(begin + bytes)};
}

// Throws the failure of the lowest rank that failed, if any. `failures` has "" for a rank that did not fail.
void throw_first(const std::vector<std::string>& failures) {
  const auto failed = [](const std::string& text) { return !text.empty(); };
  const auto first = std::find_if(failures.begin(), failures.end(), failed);
  if (first == failures.end()) return;
  // If all ranks met the same problem, such as a missing file, name no rank.
  if (std::count(failures.begin(), failures.end(), *first) == std::ssize(failures))
    throw from_text(*first, "", "");
  const int64_t others = std::count_if(first + 1, failures.end(), failed);
  throw from_text(*first, fmt::format("rank {}: ", first - failures.begin()),
                  others > 0 ? fmt::format(" (and {} more ranks failed)", others) : "");
}

}  // namespace

std::string rank_groups_text(const std::vector<std::string>& texts, const std::vector<std::string>& places) {
  // A message shows at most this many groups, because a thousand ranks would fill pages.
  constexpr size_t kShown = 4;
  std::vector<RankGroup> groups;
  for (size_t r = 0; r < texts.size(); ++r) {
    size_t g = 0;
    while (g < groups.size() && groups[g].text != texts[r]) ++g;
    if (g == groups.size()) groups.push_back({texts[r], {}, places[r]});
    groups[g].ranks.push_back(static_cast<int64_t>(r));
  }
  if (groups.size() <= 1) return "";
  std::string all;
  for (size_t g = 0; g < groups.size() && g < kShown; ++g)
    all += fmt::format("{}{} ({}{}): {}", g == 0 ? "" : "; ", ranks_text(groups[g].ranks), groups[g].where,
                       groups[g].ranks.size() == 1 ? "" : ", ...", groups[g].text);
  if (groups.size() > kShown) all += fmt::format("; and {} more", groups.size() - kShown);
  return all;
}

void require_equal(Communicator& world, ExitCode code, const std::string& what, const std::string& text,
                   const std::string& where, const std::string& hint) {
  const std::vector<std::string> texts = world.all_gather_text(text), places = world.all_gather_text(where);
  const std::string groups = rank_groups_text(texts, places);
  if (!groups.empty()) throw Error(code, fmt::format("{} differs between ranks: {}", what, groups), hint);
}

// Gathers instead of reducing, because at start-up there is no scratch for a reduction yet.
int64_t least_of_all_ranks(Communicator& world, int64_t number) {
  return std::ranges::min(of_all_ranks(world, number));
}

bool all_ranks(Communicator& world, bool holds) {
  return least_of_all_ranks(world, holds ? 1 : 0) == 1;
}

bool any_rank(Communicator& world, bool holds) {
  return !all_ranks(world, !holds);
}

std::string text_of_rank_0(Communicator& world, const std::string& text) {
  return world.all_gather_text(world.rank() == 0 ? text : std::string()).front();
}

void do_and_agree(Communicator& world, FunctionRef<void()> body) {
  // Catch every exception, because other ranks wait for this rank in the gather below.
  std::optional<Error> failure;
  try {
    body();
  } catch (...) {
    failure = current_error();
    // Communication has failed, so the gather below would fail, too, after another deadline.
    if (failure->code() == ExitCode::kCommunication) throw;
  }
  throw_first(world.all_gather_text(to_text(failure)));
}

void do_on_rank_0(Communicator& world, FunctionRef<void()> body) {
  do_and_agree(world, [&] {
    if (world.rank() == 0) body();
  });
}

}  // namespace ripstop
