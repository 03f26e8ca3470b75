#include "train/config/config_problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace ripstop {
namespace {

// A message is one line: a file of another program may have a hundred unknown keys.
constexpr size_t kMostShown = 8;

}  // namespace

void refuse(const std::string& where, const std::string& what, const std::string& hint) {
  throw Error(ExitCode::kUsage, where + ": " + what, hint);
}

void ConfigProblems::add(int64_t line, std::string text, std::function<std::string()> hint, ExitCode code) {
  problems_.push_back(
      {line > 0 ? line : std::numeric_limits<int64_t>::max(), std::move(text), std::move(hint), code});
}

bool ConfigProblems::any_hint_has(std::string_view text) const {
  return problems_.size() <= kMostShown && std::ranges::any_of(problems_, [&](const Problem& problem) {
           return problem.hint().find(text) != std::string::npos;
         });
}

void ConfigProblems::refuse() const {
  if (problems_.empty()) return;
  std::vector<Problem> sorted = problems_;
  std::ranges::stable_sort(sorted, {}, &Problem::line);
  if (sorted.size() == 1) throw Error(sorted[0].code, sorted[0].text, sorted[0].hint());

  std::string all;
  for (size_t i = 0; i < std::min(sorted.size(), kMostShown); ++i) {
    const std::string hint = sorted[i].hint();
    all += (i == 0 ? "" : "; ") + sorted[i].text + (hint.empty() ? "" : " (" + hint + ")");
  }
  if (sorted.size() > kMostShown) all += fmt::format("; and {} more", sorted.size() - kMostShown);
  throw Error(ExitCode::kUsage, all, "docs/config.md lists every key with its values");
}

}  // namespace ripstop
