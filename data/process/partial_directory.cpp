#include "data/process/partial_directory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "data/process/process_identity.h"
#include "data/process/shell_word.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr const char *kOwnerFile = "OWNER", *kContent = "content";

ProcessIdentity owner_of(Io& io, const fs::path& partial) {
  try {
    return parse_process(read_whole_file(io, partial / kOwnerFile, 4096));
  } catch (const Error&) {
    // The owner has yet to write the file, was killed before, or has disowned the directory.
    return {};
  }
}

/// The partial directories of `output`, sorted by name. Empty if the parent cannot be listed, which is no
/// error: a new directory may still be made there.
std::vector<fs::path> partials_of(Io& io, const fs::path& output) {
  const std::string begin = output.filename().string() + ".partial-";
  std::vector<Io::Entry> entries;
  std::vector<fs::path> partials;
  if (io.list(folder_of(output), entries) != 0) return partials;
  for (const Io::Entry& entry : entries)
    if (entry.is_directory && entry.name.starts_with(begin))
      partials.push_back(output.parent_path() / entry.name);
  std::ranges::sort(partials);
  return partials;
}

[[noreturn]] void refuse_second(const fs::path& output, const ProcessIdentity& owner) {
  throw Error(ExitCode::kUsage, fmt::format("{}: {} makes it now", output.string(), describe(owner)),
              "wait until it ends, or name another output");
}

/// Throws Error(kUsage) if a running process makes `output`: only one of two processes could put its
/// directory in place.
void remove_leftovers(Io& io, const fs::path& output, const std::function<void(const std::string&)>& note) {
  const auto tell = [&](const std::string& text) {
    if (note) note(text);
  };
  for (const fs::path& left : partials_of(io, output)) {
    const ProcessIdentity owner = owner_of(io, left);
    const ProcessState state = state_of(owner);
    if (state == ProcessState::kGone) {
      const bool is_gone = remove_tree(io, left);
      tell(fmt::format("{} {}: {} was killed before it was done", is_gone ? "removed" : "cannot remove",
                       left.string(), describe(owner)));
    } else if (state == ProcessState::kRuns) {
      refuse_second(output, owner);
    } else {
      tell(fmt::format("{} was left by {}; if that has ended: rm -r {}", left.string(),
                       owner.empty() ? "an unknown process" : describe(owner), shell_word(left.string())));
    }
  }
}

/// Looks for a process that started to make `output` at the same moment: each of the two may have missed the
/// other's directory in remove_leftovers(). Throws Error(kUsage) at once if the other directory comes first
/// by name, else after a second unless the other process gives way: it may have looked before this
/// directory was made.
void give_way(Io& io, const fs::path& output, const fs::path& own) {
  constexpr int kLooks = 50;
  for (int look = 1; look <= kLooks; ++look) {
    bool is_alone = true;
    for (const fs::path& other : partials_of(io, output)) {
      const ProcessIdentity owner = owner_of(io, other);
      const bool has_owner = !owner.empty();  // a new directory has no owner for a moment
      if (other == own || (has_owner && state_of(owner) != ProcessState::kRuns)) continue;
      if (has_owner && (other < own || look == kLooks)) refuse_second(output, owner);
      is_alone = false;
    }
    if (is_alone) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool is_empty_directory(Io& io, const fs::path& path) {
  Io::Status status;
  return io.status(path, status) == 0 && status.is_directory && list_directory(io, path).empty();
}

}  // namespace

fs::path make_partial_directory(Io& io, const fs::path& output,
                                const std::function<void(const std::string&)>& note) {
  remove_leftovers(io, output, note);
  // A process with the same id on another machine may have made the directory: append a second number.
  const std::string begin = output.string() + fmt::format(".partial-{}", getpid());
  fs::path partial = begin;
  for (int64_t more = 1; io.mkdir(partial) != 0; ++more) {
    const int error = errno;
    if (error != EEXIST)
      throw Error(ExitCode::kStorage,
                  fmt::format("{}: cannot make this directory: {}", partial.string(),
                              std::generic_category().message(error)),
                  "name an output where you may write");
    partial = begin + fmt::format(".{}", more);
  }
  try {
    create_file(io, partial / kOwnerFile, to_text(this_process()));
    give_way(io, output, partial);
  } catch (...) {
    remove_tree(io, partial);
    throw;
  }
  return partial;
}

void disown_partial_directory(Io& io, const fs::path& partial) {
  (void)io.unlink(partial / kOwnerFile);
}

PartialDirectory::PartialDirectory(Io& io, const fs::path& output,
                                   const std::function<void(const std::string&)>& note)
    : io_(io), output_(without_slash(output.lexically_normal())) {
  if (path_exists(io_, output_) && !is_empty_directory(io_, output_))
    throw Error(ExitCode::kUsage, fmt::format("{}: exists already", output_.string()),
                "name a new directory, or remove this one");
  try {
    make(note);
  } catch (...) {
    remove();
    throw;
  }
}

void PartialDirectory::make(const std::function<void(const std::string&)>& note) {
  std::vector<fs::path> missing;
  for (fs::path parent = folder(); !path_exists(io_, parent); parent = folder_of(parent))
    missing.push_back(parent);
  if (!missing.empty()) made_parent_ = missing.back();
  // If a parent is still missing, make_partial_directory() fails with a better message.
  for (; !missing.empty(); missing.pop_back()) (void)io_.mkdir(missing.back());
  partial_ = make_partial_directory(io_, output_, note);
  content_ = partial_ / kContent;
  make_directory(io_, content_);
}

PartialDirectory::~PartialDirectory() {
  if (!partial_.empty()) remove();
}

fs::path PartialDirectory::folder() const {
  return folder_of(output_);
}

void PartialDirectory::remove() {
  if (!partial_.empty()) remove_tree(io_, partial_);
  if (made_parent_.empty()) return;
  for (fs::path parent = folder();; parent = folder_of(parent)) {
    // rmdir fails, as it should, if other processes have put something there.
    io_.rmdir(parent);
    if (parent == made_parent_) return;
  }
}

void PartialDirectory::rename_to_output() {
  // A power loss after the rename must not leave an empty output.
  sync_directory(io_, content_);
  if (io_.rename(content_, output_) != 0)  // may replace an empty directory
    fail_storage(output_, "put it in place", errno);
  try {
    sync_directory(io_, folder());
  } catch (...) {
    // Renames back: after an error there must be no output.
    (void)io_.rename(output_, content_);
    throw;
  }
  // The next make_partial_directory() for this output removes or reports what stays.
  remove_tree(io_, partial_);
  partial_.clear();
}

}  // namespace ripstop
