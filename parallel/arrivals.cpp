#include "parallel/arrivals.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <system_error>

#include "model/core/error.h"
#include "model/core/number.h"
#include "parallel/rank_names.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = ".ripstop-start.";

// Returns `near` or the nearest existing directory above it, because a new run has no directory yet, and a
// refused start must not make one.
fs::path nearest_folder(const fs::path& near) {
  std::error_code error;
  fs::path path = fs::absolute(near, error);
  while (!fs::is_directory(path, error) && path.has_relative_path()) path = path.parent_path();
  return path;
}

// A launcher may use "n7" for the node that calls itself "n7.example.org".
std::string_view short_name(std::string_view host) {
  return host.substr(0, host.find('.'));
}

// Nodes of the job from which no rank has come. Empty if no node's name is the name of a host, because then
// the names cannot be compared.
std::string empty_nodes(const std::vector<std::string>& host_of, const std::vector<std::string>& nodes) {
  std::string text;
  size_t found = 0;
  for (const std::string& node : nodes) {
    const bool is_there = std::any_of(host_of.begin(), host_of.end(), [&](const std::string& host) {
      return short_name(host) == short_name(node);
    });
    found += is_there ? 1 : 0;
    if (!is_there) text += (text.empty() ? "" : ", ") + node;
  }
  return found > 0 ? text : "";
}

// Parses the file name of a rank, such as "3@node07".
std::optional<ArrivalsSeen::Rank> parse_name(const std::string& name) {
  const size_t at = name.find('@');
  if (at == std::string::npos) return std::nullopt;
  const std::optional<int64_t> rank = parse_whole_number(std::string_view(name).substr(0, at));
  if (!rank) return std::nullopt;
  return ArrivalsSeen::Rank{*rank, name.substr(at + 1)};
}

// Whether `path` is a directory of this user, not a link to one.
bool is_own_folder(const fs::path& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid();
}

}  // namespace

std::string missing_at_start(const ArrivalsSeen& seen, int64_t size, const std::vector<std::string>& nodes) {
  std::vector<std::string> host_of(static_cast<size_t>(size));
  std::vector<int64_t> absent, still, come;
  for (const ArrivalsSeen::Rank& each : seen.ranks) {
    if (each.rank >= size) continue;
    host_of[static_cast<size_t>(each.rank)] = each.host;
    come.push_back(each.rank);
    if (!each.moves) still.push_back(each.rank);
  }
  for (int64_t rank = 0; rank < size; ++rank)
    if (std::find(come.begin(), come.end(), rank) == come.end()) absent.push_back(rank);
  const std::string empty = empty_nodes(host_of, nodes);
  std::string text;
  if (!absent.empty())
    text =
        fmt::format("{} of {} {} not come{}", ranks_text(absent), size, absent.size() == 1 ? "has" : "have",
                    empty.empty() ? "" : fmt::format(", and nobody from {}", empty));
  if (!still.empty())
    text += fmt::format("{}{} came and {} still", text.empty() ? "" : "; ", ranks_and_hosts(still, host_of),
                        still.size() == 1 ? "stands" : "stand");
  if (text.empty()) return fmt::format("all {} ranks have come and run, but MPI does not go on", size);
  if (!come.empty()) text += fmt::format("; seen: {}", ranks_and_hosts(come, host_of));
  return text;
}

Arrivals::Arrivals(const fs::path& near, const std::string& launch, int64_t rank, const std::string& host,
                   double seconds_between_touches)
    : folder_(nearest_folder(near) / (std::string(kFolderPrefix) + launch)),
      file_(folder_ / fmt::format("{}@{}", rank, host)),
      seconds_between_touches_(seconds_between_touches) {
  thread_ = std::thread([this] { touch_again(); });
}

void Arrivals::touch_again() {
  const auto pause = std::chrono::duration<double>(seconds_between_touches_);
  // Every rank tries to make the folder; the first one succeeds. Another user who guessed the name may have
  // made it before. Such a folder is not used, because its links could lead anywhere.
  ::mkdir(folder_.c_str(), 0700);
  int file = -1;
  if (const int folder = ::open(folder_.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      folder >= 0) {
    struct stat facts {};
    if (::fstat(folder, &facts) == 0 && facts.st_uid == ::geteuid())
      file = ::openat(folder, file_.filename().c_str(),
                      O_CREAT | O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    ::close(folder);
  }
  std::unique_lock lock(mutex_);
  while (!ends_) {
    lock.unlock();
    // Null lets the file server set the time, because the clocks of two nodes may differ.
    if (file >= 0) ::futimens(file, nullptr);
    lock.lock();
    woken_.wait_for(lock, pause, [this] { return ends_; });
  }
  if (file >= 0) ::close(file);
}

void Arrivals::leave() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  woken_.notify_one();
  thread_.join();
  if (!is_own_folder(folder_)) return;
  ::unlink(file_.c_str());
  ::rmdir(folder_.c_str());
}

void Arrivals::remove_all() const {
  std::error_code error;
  if (is_own_folder(folder_)) fs::remove_all(folder_, error);
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(24);
  fs::directory_iterator entry(folder_.parent_path(), error);
  // Look at some entries only, since the parent folder may have thousands, and a start should not wait.
  constexpr int kMostEntries = 1000;
  for (int i = 0; i < kMostEntries && !error && entry != fs::directory_iterator(); ++i) {
    std::error_code ignored;
    if (entry->path().filename().string().starts_with(kFolderPrefix) && is_own_folder(entry->path()) &&
        fs::last_write_time(entry->path(), ignored) < old && !ignored)
      fs::remove_all(entry->path(), ignored);
    entry.increment(error);
  }
}

ArrivalsSeen Arrivals::look() const {
  constexpr int kTouchesMissed = 4;
  ArrivalsSeen seen{.folder = folder_, .ranks = {}};
  std::vector<fs::file_time_type> touched;
  if (!is_own_folder(folder_)) return seen;
  std::error_code error;
  fs::directory_iterator entry(folder_, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::optional<ArrivalsSeen::Rank> rank = parse_name(entry->path().filename().string());
    std::error_code gone;
    const fs::file_time_type time = fs::last_write_time(entry->path(), gone);
    if (!rank || gone) continue;
    seen.ranks.push_back(*rank);
    touched.push_back(time);
  }
  if (touched.empty()) return seen;
  const fs::file_time_type newest = *std::max_element(touched.begin(), touched.end());
  for (size_t i = 0; i < touched.size(); ++i)
    seen.ranks[i].moves = std::chrono::duration<double>(newest - touched[i]).count() <=
                          kTouchesMissed * seconds_between_touches_;
  std::sort(seen.ranks.begin(), seen.ranks.end(),
            [](const ArrivalsSeen::Rank& a, const ArrivalsSeen::Rank& b) { return a.rank < b.rank; });
  return seen;
}

}  // namespace ripstop
