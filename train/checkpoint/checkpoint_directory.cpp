#include "train/checkpoint/checkpoint_directory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>

#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr std::string_view kAttempt = ".tmp.", kTrash = ".trash.", kReplaced = ".old.";

bool begins_with(const std::string& name, std::string_view prefix) {
  return name.compare(0, prefix.size(), prefix) == 0;
}

void check_size(Io& io, const std::filesystem::path& path, int64_t bytes) {
  Io::Status status;
  if (io.status(path, status) != 0) fail_storage(path, "find it", errno);
  if (!status.is_file) fail(ExitCode::kStorage, "{}: is not a plain file", path.string());
  if (status.bytes != bytes)
    fail(ExitCode::kStorage, "{}: has {} bytes, the manifest says {}", path.string(), status.bytes, bytes);
}

ListedCheckpoint look_at(Io& io, int64_t step, const std::filesystem::path& directory) {
  ListedCheckpoint listed{step, directory, {}, {}};
  try {
    listed.manifest = check_checkpoint(io, directory);
  } catch (const IoError& error) {
    listed.problem = error.what();
    listed.unreadable = !error.is_absence();
  } catch (const Error& error) {
    listed.problem = error.what();
  }
  return listed;
}

/// ".old.step_00001000.123.456": the checkpoint that a save was replacing when it was killed goes back,
/// unless the new one has come in its place.
void put_back(Io& io, const std::filesystem::path& directory, const std::string& name) {
  const std::string step = name.substr(kReplaced.size(), name.find('.', kReplaced.size()) - kReplaced.size());
  Io::Status status;
  if (!parse_step_directory_name(step) || io.status(directory / step, status) == 0) {
    remove_tree(io, directory / name);
  } else {
    rename_path(io, directory / name, directory / step);
  }
}

void check_writable(Io& io, const std::filesystem::path& directory) {
  const std::filesystem::path probe = directory / fmt::format("{}probe.{}", kAttempt, ::getpid());
  write_file(io, probe, "ripstop");
  if (io.unlink(probe) != 0) fail_storage(probe, "remove it", errno);
}

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

bool is_directory(Io& io, const std::filesystem::path& path) {
  Io::Status status;
  // Links of the user's own are followed here, other than inside a checkpoint.
  std::error_code error;
  return io.status(path, status) == 0 && std::filesystem::is_directory(path, error);
}

const ListedCheckpoint* newest_whole(const std::vector<ListedCheckpoint>& listed) {
  for (auto at = listed.rbegin(); at != listed.rend(); ++at)
    if (at->manifest) return &*at;
  return nullptr;
}

const ListedCheckpoint* find_step(const std::vector<ListedCheckpoint>& listed, int64_t step) {
  for (const ListedCheckpoint& checkpoint : listed)
    if (checkpoint.step == step) return &checkpoint;
  return nullptr;
}

/// "250, 500".
std::string steps_text(const std::vector<ListedCheckpoint>& listed) {
  std::string text;
  for (const ListedCheckpoint& checkpoint : listed)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", checkpoint.step);
  return text;
}

int64_t parse_step(const std::string& which) {
  int64_t step = 0;
  const char* end = which.data() + which.size();
  const auto parsed = std::from_chars(which.data(), end, step);
  if (parsed.ec != std::errc{} || parsed.ptr != end || step < 0)
    fail(ExitCode::kUsage, "no checkpoint is called '{}': best, latest or a step was expected", which);
  return step;
}

}  // namespace

Manifest check_checkpoint(Io& io, const std::filesystem::path& directory) {
  Manifest manifest = read_manifest(io, directory);
  const std::optional<int64_t> step = parse_step_directory_name(directory.filename().string());
  if (step && *step != manifest.state.step)
    fail(ExitCode::kStorage, "{}: holds the checkpoint of step {}", directory.string(), manifest.state.step);
  for (const StoredFile& file : manifest.files) {
    check_size(io, directory / rank_file_name(file.rank), file.bytes);
    check_size(io, directory / sidecar_file_name(file.rank), file.sidecar_bytes);
  }
  return manifest;
}

std::vector<ListedCheckpoint> list_checkpoints(Io& io, const std::filesystem::path& directory) {
  std::vector<ListedCheckpoint> listed;
  for (const Io::Entry& entry : list_directory(io, directory))
    if (const std::optional<int64_t> step = parse_step_directory_name(entry.name); step && entry.is_directory)
      listed.push_back(look_at(io, *step, directory / entry.name));
  std::sort(listed.begin(), listed.end(),
            [](const ListedCheckpoint& a, const ListedCheckpoint& b) { return a.step < b.step; });
  return listed;
}

std::filesystem::path find_checkpoint(Io& io, const std::filesystem::path& path, const std::string& which) {
  const bool by_name = which == "latest" || which == "best";
  const int64_t step = by_name ? 0 : parse_step(which);
  Io::Status status;
  std::filesystem::path directory = path.has_filename() ? path : path.parent_path();  // "step_1/" is "step_1"
  if (io.status(directory / Manifest::kFileName, status) == 0 ||
      parse_step_directory_name(directory.filename().string()))
    return directory;
  if (!is_directory(io, directory))
    throw Error(ExitCode::kStorage, fmt::format("{}: no such directory", directory.string()),
                "name a run's directory, or one of its checkpoints");
  if (is_directory(io, directory / "checkpoints")) directory /= "checkpoints";

  const std::vector<ListedCheckpoint> listed = list_checkpoints(io, directory);
  if (listed.empty())
    throw Error(ExitCode::kStorage, fmt::format("{}: has no checkpoint", directory.string()),
                "ripstop train saves the first after checkpoint.every_steps steps; ripstop status tells how "
                "far a run is");
  const ListedCheckpoint* newest = newest_whole(listed);
  if (!by_name) {
    const ListedCheckpoint* found = find_step(listed, step);
    if (found == nullptr)
      throw Error(ExitCode::kStorage,
                  fmt::format("{}: has no checkpoint of step {}", directory.string(), step),
                  "there are those of step " + steps_text(listed));
    return found->directory;
  }
  if (newest == nullptr) return listed.back().directory;
  if (which == "best" && newest->manifest->state.best) {
    const ListedCheckpoint* best = find_step(listed, newest->manifest->state.best->step);
    if (best == nullptr)
      throw Error(ExitCode::kStorage,
                  fmt::format("{}: the best checkpoint, of step {}, is not there", directory.string(),
                              newest->manifest->state.best->step),
                  "take another: --checkpoint latest, or step " + steps_text(listed));
    return best->directory;
  }
  return newest->directory;
}

void prepare_checkpoint_directory(Io& io, const std::filesystem::path& directory) {
  if (io.mkdir(directory) != 0 && errno != EEXIST) fail_storage(directory, "make the directory", errno);
  check_writable(io, directory);
  for (const Io::Entry& entry : list_directory(io, directory)) {
    if (begins_with(entry.name, kReplaced)) put_back(io, directory, entry.name);
    if (!begins_with(entry.name, kAttempt) && !begins_with(entry.name, kTrash)) continue;
    // What cannot be removed takes room but does no harm.
    if (entry.is_directory) remove_tree(io, directory / entry.name);
    if (!entry.is_directory) io.unlink(directory / entry.name);
  }
  sync_directory(io, directory);
}

void check_disk_space(Io& io, const std::filesystem::path& directory, int64_t keep,
                      int64_t checkpoint_bytes) {
  int64_t room = 0, present = 0;
  if (io.free_bytes(directory, room) != 0) fail_storage(directory, "ask for the free space", errno);
  const std::vector<ListedCheckpoint> listed = list_checkpoints(io, directory);
  for (const ListedCheckpoint& checkpoint : listed)
    if (checkpoint.manifest) present += checkpoint.manifest->bytes();
  const int64_t wanted = keep == 0 ? present + checkpoint_bytes : (keep + 1) * checkpoint_bytes;
  if (room + present >= wanted) return;
  throw Error(ExitCode::kStorage,
              fmt::format("{}: {} free and {} in checkpoints, but {} checkpoints of {} need {}",
                          directory.string(), gibibytes(room), gibibytes(present),
                          keep == 0 ? static_cast<int64_t>(listed.size()) + 1 : keep + 1,
                          gibibytes(checkpoint_bytes), gibibytes(wanted)),
              "free some space, or lower checkpoint.keep");
}

std::vector<int64_t> remove_old_checkpoints(Io& io, const std::filesystem::path& directory, int64_t step,
                                            int64_t keep, std::optional<int64_t> best_step,
                                            std::vector<std::string>& warnings) {
  std::vector<int64_t> removed;
  if (keep == 0) return removed;
  try {
    const std::vector<ListedCheckpoint> listed = list_checkpoints(io, directory);
    int64_t kept = 0;
    for (auto at = listed.rbegin(); at != listed.rend(); ++at) {
      if (!at->manifest || at->step > step) continue;
      if (++kept <= keep || at->step == best_step) continue;
      const std::filesystem::path trash =
          directory / fmt::format("{}{}.{}.{}", kTrash, at->directory.filename().string(), ::getpid(),
                                  std::chrono::steady_clock::now().time_since_epoch().count());
      rename_path(io, at->directory, trash);
      removed.push_back(at->step);
      if (!remove_tree(io, trash)) warnings.push_back(fmt::format("cannot remove {}", trash.string()));
    }
  } catch (const Error& error) {
    warnings.push_back(fmt::format("old checkpoints stay: {}", error.what()));
  }
  return removed;
}

}  // namespace ripstop
