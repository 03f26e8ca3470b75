#include "train/config/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <utility>

#include "data/files/directory.h"
#include "data/process/shell_word.h"
#include "data/text/utf8.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// Returns "batch_size" for "Batch-Size".
std::string folded(std::string_view name) {
  // The time for an edit distance grows with the square of the length.
  std::string result = lower_case(name.substr(0, 64));
  std::ranges::replace(result, '-', '_');
  return result;
}

// Optimal string alignment. Keeps three rows of the table, because a swap of neighbours looks back two rows.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

// Whether the path is below /proc or /dev/fd, where a near name may be another process or descriptor.
bool is_of_the_system(const fs::path& path) {
  std::error_code ignored;
  const std::string at = fs::absolute(path, ignored).lexically_normal().string();
  return at.rfind("/proc/", 0) == 0 || at.rfind("/dev/fd/", 0) == 0;
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string wanted = folded(name);
  // One error for each four letters, at least one: more would take "compile" for "compute".
  size_t best = std::max<size_t>(wanted.size() / 4, 1) + 1;
  std::string result;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(wanted, folded(candidate));
    if (distance < best) {
      best = distance;
      result = candidate;
    }
  }
  return result;
}

std::vector<std::string> names_in(const fs::path& directory) {
  // Listing more takes seconds on a network file system.
  constexpr size_t kMostNames = 10'000;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; entry != end && names.size() < kMostNames;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::string hint_for_absent(const fs::path& path, std::string_view option, std::string_view inside) {
  std::error_code error, ignored;
  const fs::path folder = folder_of(path);
  const bool wants_a_file = inside.size() > 1;  // "." is in every directory
  if (wants_a_file && fs::is_regular_file(path, ignored) && fs::exists(folder / inside, ignored))
    return fmt::format("did you mean {}{}?", option, shell_word(folder.string()));
  if (fs::exists(path, error) || error) return "";
  const fs::path file = without_slash(path);
  if (std::string link = hint_for_link(file); !link.empty()) return link;
  const std::string name = file.filename().string();
  if (name.empty() || is_of_the_system(file)) return "";
  // Without `inside`, tests `other` itself: `other / ""` ends with a slash, which only directories may have.
  const auto holds = [&](const fs::path& other) {
    return fs::exists(inside.empty() ? other : other / inside, ignored);
  };
  std::vector<std::string> candidates;
  for (std::string& other : names_in(folder_of(file)))
    // Compares names first, because looking at files takes longer.
    if (!nearest_name(name, {&other, 1}).empty() && holds(file.parent_path() / other))
      candidates.push_back(std::move(other));
  const std::string nearest = nearest_name(name, candidates);
  if (nearest.empty()) return "";
  return fmt::format("did you mean {}{}?", option, shell_word((file.parent_path() / nearest).string()));
}

std::string hint_for_absent_set(const DataSection& data, const std::string& directory) {
  return hint_for_absent(directory, data.directories.empty() ? "data.directory=" : "", "train.h5");
}

}  // namespace ripstop
