#include "train/config/nearest_name.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <system_error>
#include <vector>

namespace ripstop {
namespace {

// The same word in another spelling, as Batch-Size for batch_size, has distance 0.
std::string folded(std::string_view name) {
  // The distance takes time that grows with the square of the length. Names are short, so cut long input.
  std::string result(name.substr(0, 64));
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// Optimal string alignment: letters that are inserted, deleted, replaced, or swapped with their neighbour.
// Three rows of the table are enough, because a swap looks back two rows.
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

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string wanted = folded(name);
  // At most one slip in four letters. With more, "compile" would be taken for "compute".
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

std::string nearest_path(const std::filesystem::path& path) {
  // "data/" is "data".
  const std::filesystem::path file = path.has_filename() ? path : path.parent_path();
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(
           file.has_parent_path() ? file.parent_path() : std::filesystem::path("."), error))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);  // the system gives them in any order
  const std::string nearest = nearest_name(file.filename().string(), names);
  return nearest.empty() ? "" : (file.parent_path() / nearest).string();
}

}  // namespace ripstop
