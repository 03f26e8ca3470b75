#include "parallel/start_up.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

namespace ripstop {
namespace {

struct RankGroup {
  std::string text;
  std::vector<std::int64_t> ranks;
  std::string where;  // of the first
};

// "0-2,5"
std::string ranges(const std::vector<std::int64_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (end - i > 1) text += fmt::format("-{}", ranks[end - 1]);
    i = end;
  }
  return text;
}

// "code length-of-what what hint"; nothing for none.
std::string to_text(const std::optional<Error>& error) {
  if (!error) return "";
  const std::string what = error->what();
  return fmt::format("{} {} {}{}", static_cast<int>(error->code()), what.size(), what, error->hint());
}

// `name` goes before what is wrong.
Error from_text(const std::string& text, const std::string& name) {
  std::istringstream words(text);
  int code = 0;
  std::size_t bytes = 0;
  if (!(words >> code >> bytes)) return {ExitCode::kBug, "a rank failed without saying how: " + text};
  const auto begin = static_cast<std::size_t>(words.tellg()) + 1;
  return {static_cast<ExitCode>(code), name + text.substr(begin, bytes), text.substr(begin + bytes)};
}

}  // namespace

void require_equal(Communicator& world, ExitCode code, const std::string& what, const std::string& text,
                   const std::string& where, const std::string& hint) {
  constexpr std::size_t kShown = 4;
  const std::vector<std::string> texts = world.all_gather_text(text), places = world.all_gather_text(where);
  std::vector<RankGroup> groups;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    std::size_t g = 0;
    while (g < groups.size() && groups[g].text != texts[r]) ++g;
    if (g == groups.size()) groups.push_back({texts[r], {}, places[r]});
    groups[g].ranks.push_back(static_cast<std::int64_t>(r));
  }
  if (groups.size() <= 1) return;
  std::string all;
  for (std::size_t g = 0; g < groups.size() && g < kShown; ++g) {
    const bool one = groups[g].ranks.size() == 1;
    all += fmt::format("{}{} {} ({}{}): {}", g == 0 ? "" : "; ", one ? "rank" : "ranks",
                       ranges(groups[g].ranks), groups[g].where, one ? "" : ", ...", groups[g].text);
  }
  if (groups.size() > kShown) all += fmt::format("; and {} more", groups.size() - kShown);
  throw Error(code, fmt::format("{} differs between ranks: {}", what, all), hint);
}

std::int64_t least_of_all_ranks(Communicator& world, std::int64_t number) {
  std::int64_t least = number;
  for (const std::string& text : world.all_gather_text(std::to_string(number)))
    least = std::min<std::int64_t>(least, std::stoll(text));
  return least;
}

void agree(Communicator& world, const std::optional<Error>& own) {
  const std::vector<std::string> texts = world.all_gather_text(to_text(own));
  std::size_t first = 0;
  while (first < texts.size() && texts[first].empty()) ++first;
  if (first == texts.size()) return;
  bool everywhere = true;
  for (const std::string& text : texts) everywhere = everywhere && text == texts[first];
  throw from_text(texts[first], everywhere ? "" : fmt::format("rank {}: ", first));
}

void do_and_agree(Communicator& world, FunctionRef<void()> body) {
  std::optional<Error> failure;
  try {
    body();
  } catch (const Error& error) {
    failure = error;
  } catch (const std::bad_alloc&) {
    failure = Error(ExitCode::kResources, "out of host memory");
  } catch (const std::system_error& error) {
    failure = Error(ExitCode::kStorage, error.what());
  } catch (const std::exception& error) {
    failure = Error(ExitCode::kBug, error.what(), "please report this");
  }
  agree(world, failure);
}

}  // namespace ripstop
