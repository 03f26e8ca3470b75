#include "train/checkpoint/checkpoint_directory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>

#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "model/core/error.h"
#include "model/core/number.h"
#include "train/checkpoint/takeovers.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

Manifest check_manifest_and_sizes(Io& io, const std::filesystem::path& directory) {
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

/// Sets the manifest of `listed` if the checkpoint may be used, else its problem: a damaged checkpoint must
/// not hide the others.
void look_at(Io& io, ListedCheckpoint& listed, const Takeovers& takeovers) {
  try {
    Manifest manifest = check_manifest_and_sizes(io, listed.directory);
    const std::string refusal = takeovers.refusal(manifest.state.step, manifest.state.takeover);
    listed.is_superseded = !refusal.empty();
    if (listed.is_superseded)
      listed.problem = listed.directory.string() + ": " + refusal;
    else
      listed.manifest = std::move(manifest);
  } catch (const IoError& error) {
    // A missing file is damage. A link that leads nowhere is not: its archive may be unmounted.
    listed.is_unreadable = !error.is_absence() || (listed.is_link && !directory_exists(io, listed.directory));
    listed.problem = error.what();
  } catch (const OtherFormat& error) {
    listed.is_unreadable = true;
    listed.problem = error.what();
    listed.hint = error.hint();
  } catch (const Error& error) {
    listed.problem = error.what();
  }
}

std::optional<int64_t> step_of_replaced(const std::string& name) {
  if (!name.starts_with(kReplacedPrefix)) return std::nullopt;
  return parse_step_directory_name(
      name.substr(kReplacedPrefix.size(), name.find('.', kReplacedPrefix.size()) - kReplacedPrefix.size()));
}

/// Undoes an interrupted replacement: renames the directory `name` (".old.step_*") to the name of its step,
/// or removes it if that name is taken or `name` has no step.
void put_back(Io& io, const std::filesystem::path& directory, const std::string& name) {
  const std::optional<int64_t> step = step_of_replaced(name);
  if (!step || path_exists(io, directory / step_directory_name(*step))) {
    remove_tree(io, directory / name);
  } else {
    rename_path(io, directory / name, directory / step_directory_name(*step));
  }
}

/// Writes a file as a test, because a file system with the right permissions may still be read-only or full.
void check_writable(Io& io, const std::filesystem::path& directory) {
  const std::filesystem::path probe = directory / fmt::format("{}probe.{}", kAttemptPrefix, ::getpid());
  create_file(io, probe, "ripstop");
  if (io.unlink(probe) != 0) fail_storage(probe, "remove", errno);
}

/// The step of "step_00001000SUFFIX" and "step_00001000SUFFIX.123"; nullopt for other names.
std::optional<int64_t> step_of_aside(const std::string& name, std::string_view suffix) {
  const size_t at = name.find(suffix);
  if (at == name.npos) return std::nullopt;
  const std::string rest = name.substr(at + suffix.size());
  if (!rest.empty() && (rest[0] != '.' || !parse_whole_number(rest.substr(1)))) return std::nullopt;
  return parse_step_directory_name(name.substr(0, at));
}

/// The bytes of all files below `directory`, which must not be a symbolic link.
int64_t tree_bytes(Io& io, const std::filesystem::path& directory) {
  int64_t bytes = 0;
  for (const Io::Entry& entry : list_directory(io, directory)) {
    Io::Status status;
    if (entry.is_directory)
      bytes += tree_bytes(io, directory / entry.name);
    else if (io.status(directory / entry.name, status) == 0 && status.is_file)
      bytes += status.bytes;
  }
  return bytes;
}

/// About the bytes that deleting the checkpoint frees: those of its files, without holes.
int64_t bytes_on_disk(Io& io, const ListedCheckpoint& checkpoint) {
  int64_t sum = 0;
  for (const StoredFile& file : checkpoint.manifest->files) {
    Io::Status status;
    const bool is_known = io.status(checkpoint.directory / rank_file_name(file.rank), status) == 0 &&
                          status.allocated_bytes > 0;
    sum += (is_known ? std::min(file.bytes, status.allocated_bytes) : file.bytes) + file.sidecar_bytes;
  }
  return sum;
}

/// Renames before removing, so that a killed process leaves nothing that looks like a damaged checkpoint.
void remove_checkpoint(Io& io, const std::filesystem::path& directory, int64_t step,
                       std::vector<std::string>& warnings) {
  const std::filesystem::path trash = directory.parent_path() / temporary_name(kTrashPrefix, step);
  rename_path(io, directory, trash);
  if (!remove_tree(io, trash)) warnings.push_back(fmt::format("cannot remove {}", trash.string()));
}

}  // namespace

std::string temporary_name(std::string_view prefix, int64_t step) {
  return fmt::format("{}{}.{}.{}", prefix, step_directory_name(step), ::getpid(),
                     std::chrono::steady_clock::now().time_since_epoch().count());
}

void check_size(Io& io, const std::filesystem::path& path, int64_t bytes) {
  Io::Status status;
  if (io.status(path, status) != 0) fail_storage(path, "find", errno);
  if (!status.is_file) fail(ExitCode::kStorage, "{}: is not a plain file", path.string());
  if (status.bytes != bytes)
    fail(ExitCode::kStorage, "{}: has {} bytes, the manifest says {}", path.string(), status.bytes, bytes);
}

const char* ListedCheckpoint::verdict() const {
  return manifest ? "whole" : is_superseded ? "superseded" : is_unreadable ? "unreadable" : "damaged";
}

ListedCheckpoint look_at_checkpoint(Io& io, const std::filesystem::path& directory) {
  ListedCheckpoint listed{.directory = directory};
  look_at(io, listed, Takeovers::read(io, folder_of_checkpoint(directory)));
  return listed;
}

std::vector<ListedCheckpoint> list_checkpoints(Io& io, const std::filesystem::path& directory) {
  std::vector<ListedCheckpoint> listed;
  const std::vector<Io::Entry> entries = list_directory(io, directory);
  const Takeovers takeovers = Takeovers::read(io, directory);
  std::map<int64_t, const Io::Entry*> by_step;
  // Entries are sorted by name, so "step_*" replaces ".old.step_*" of the same step in the map.
  for (const Io::Entry& entry : entries)
    for (const std::optional<int64_t> step :
         {step_of_replaced(entry.name), parse_step_directory_name(entry.name)})
      if (step && (entry.is_directory || entry.is_link)) by_step[*step] = &entry;
  for (const auto& [step, entry] : by_step) {
    listed.push_back({.step = step, .directory = directory / entry->name, .is_link = entry->is_link});
    look_at(io, listed.back(), takeovers);
    // A run that goes on may have removed the checkpoint since the listing.
    if (!listed.back().manifest && !path_exists(io, listed.back().directory)) listed.pop_back();
  }
  return listed;
}

std::vector<CheckpointAside> list_aside(Io& io, const std::filesystem::path& directory) {
  std::vector<CheckpointAside> aside;
  for (const Io::Entry& entry : list_directory(io, directory))
    for (const std::string_view suffix : {kDamagedSuffix, kSupersededSuffix})
      if (const std::optional<int64_t> step = step_of_aside(entry.name, suffix);
          step && (entry.is_directory || entry.is_link))
        aside.push_back({*step, directory / entry.name,
                         entry.is_link ? 0 : tree_bytes(io, directory / entry.name),
                         suffix == kSupersededSuffix});
  return aside;
}

std::optional<std::filesystem::path> move_aside(Io& io, const std::filesystem::path& directory,
                                                const std::filesystem::path& name, std::string_view suffix) {
  std::filesystem::path aside = name;
  aside += suffix;
  if (io.rename(directory, aside) == 0) return aside;
  // An earlier checkpoint that was moved aside may have this name.
  aside += fmt::format(".{}", std::chrono::steady_clock::now().time_since_epoch().count());
  if (io.rename(directory, aside) == 0) return aside;
  return std::nullopt;
}

void prepare_checkpoint_directory(Io& io, const std::filesystem::path& directory) {
  make_directory(io, directory);
  check_writable(io, directory);  // before anything is renamed or removed
  for (const Io::Entry& entry : list_directory(io, directory)) {
    if (entry.name.starts_with(kReplacedPrefix)) put_back(io, directory, entry.name);
    // Remains of a killed save or deletion only take disk space, so a failed removal is no error.
    if (entry.name.starts_with(kAttemptPrefix) || entry.name.starts_with(kTrashPrefix))
      (void)remove_tree(io, directory / entry.name);
  }
  sync_directory(io, directory);  // a checkpoint that was put back must survive a power loss
}

void check_disk_space(Io& io, const std::filesystem::path& directory, int64_t keep,
                      int64_t checkpoint_bytes) {
  int64_t room = 0, present = 0;
  if (io.free_bytes(directory, room) != 0) fail_storage(directory, "get the free space", errno);
  const std::vector<ListedCheckpoint> listed = list_checkpoints(io, directory);
  for (const ListedCheckpoint& checkpoint : listed)
    if (checkpoint.manifest && !checkpoint.is_link) present += bytes_on_disk(io, checkpoint);
  const int64_t wanted = keep == 0 ? present + checkpoint_bytes : (keep + 1) * checkpoint_bytes;
  if (room + present >= wanted) return;
  int64_t damaged_bytes = 0;
  for (const CheckpointAside& aside : list_aside(io, directory))
    if (!aside.is_superseded) damaged_bytes += aside.bytes;
  std::string hint = "free some space, or lower checkpoint.keep";
  if (damaged_bytes > 0)
    hint += fmt::format("; {} are in step_*{} there, which no run needs", bytes_text(damaged_bytes),
                        kDamagedSuffix);
  throw Error(ExitCode::kStorage,
              fmt::format("{}: {} free and {} in checkpoints, but {} checkpoints of {} need {}",
                          directory.string(), bytes_text(room), bytes_text(present),
                          keep == 0 ? static_cast<int64_t>(listed.size()) + 1 : keep + 1,
                          bytes_text(checkpoint_bytes), bytes_text(wanted)),
              hint);
}

void remove_old_checkpoints(Io& io, const std::filesystem::path& directory, int64_t step, int64_t keep,
                            std::optional<int64_t> best_step, std::vector<std::string>& warnings) {
  if (keep == 0) return;
  try {
    const std::vector<ListedCheckpoint> listed = list_checkpoints(io, directory);
    // Superseded checkpoints are kept by the same rule as whole ones: takeovers.json alone is no reason to
    // delete. Checkpoints of later steps stay, because this run has not reached those steps.
    const auto is_kept = [&](int64_t of_step) {
      return of_step > step || of_step == best_step ||
             std::ranges::count_if(listed, [&](const ListedCheckpoint& each) {
               return each.manifest && each.step > of_step && each.step <= step;
             }) < keep;
    };
    for (auto at = listed.rbegin(); at != listed.rend(); ++at) {
      // Skips damaged and unreadable checkpoints, which people may want to look at.
      if (is_kept(at->step) || (!at->manifest && !at->is_superseded)) continue;
      remove_checkpoint(io, at->directory, at->step, warnings);
      if (at->is_superseded) warnings.push_back("removed a checkpoint: " + at->problem);
    }
    for (const CheckpointAside& aside : list_aside(io, directory)) {
      // A damaged checkpoint stays until its step is saved again: until then, people may restore its files.
      if (aside.is_superseded ? is_kept(aside.step) : aside.step != step) continue;
      remove_checkpoint(io, aside.directory, aside.step, warnings);
      warnings.push_back(fmt::format("removed {}: its step was saved again", aside.directory.string()));
    }
  } catch (const Error& error) {
    warnings.push_back(fmt::format("old checkpoints were not removed: {}", error.what()));
  }
}

}  // namespace ripstop
