#include "data/partial_directory.h"

#include <unistd.h>

#include "data/directory.h"
#include "data/process_identity.h"
#include "data/shell_word.h"
#include "data/whole_file.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

/// Names the process that fills a partial directory.
constexpr const char* kOwnerFile = "OWNER";

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

ProcessIdentity owner_of(const fs::path& partial) {
  try {
    return parse_process(read_whole_file(posix_io(), partial / kOwnerFile, 4096));
  } catch (const Error&) {
    // It was killed before it wrote the file, or after it removed it: nothing says where it ran.
    return {};
  }
}

/// Removes what killed processes have left beside `output`, and tells `note`. Throws Error(kUsage) if a
/// process makes `output` now: only one of both could put its directory in place, and the other would have
/// worked in vain.
void remove_leftovers(const fs::path& output, const std::function<void(const std::string&)>& note) {
  const auto tell = [&](const std::string& text) {
    if (note) note(text);
  };
  const std::string begin = output.filename().string() + ".partial-";
  std::vector<Io::Entry> entries;
  // A parent that cannot be listed may still take a new directory. That is found out below.
  if (posix_io().list(parent_of(output), entries) != 0) return;
  for (const Io::Entry& entry : entries) {
    if (!entry.is_directory || !entry.name.starts_with(begin)) continue;
    const fs::path left = output.has_parent_path() ? output.parent_path() / entry.name : fs::path(entry.name);
    const ProcessIdentity owner = owner_of(left);
    const ProcessState state = state_of(owner);
    if (state == ProcessState::kGone) {
      const bool is_gone = remove_tree(posix_io(), left);
      tell(fmt::format("{} {}: {} was killed before it was done", is_gone ? "removed" : "cannot remove",
                       left.string(), describe(owner)));
    } else if (state == ProcessState::kRuns) {
      throw Error(ExitCode::kUsage, fmt::format("{}: {} makes it now", output.string(), describe(owner)),
                  "wait until it ends, or name another output");
    } else {
      tell(fmt::format("{} was left by {}; if that has ended: rm -r {}", left.string(),
                       owner.empty() ? "an unknown process" : describe(owner), shell_word(left.string())));
    }
  }
}

}  // namespace

fs::path make_partial_directory(const fs::path& output, const std::function<void(const std::string&)>& note) {
  remove_leftovers(output, note);
  // With the process id, so that people see whose it is. A process of the same number on another machine may
  // have made one: then a second number follows.
  const std::string begin = output.string() + fmt::format(".partial-{}", getpid());
  fs::path partial = begin;
  std::error_code error;
  for (int64_t more = 1; fs::exists(fs::symlink_status(partial, error)); ++more)
    partial = begin + fmt::format(".{}", more);
  if (!fs::create_directory(partial, error)) {
    throw Error(ExitCode::kStorage,
                fmt::format("{}: cannot make this directory: {}", partial.string(),
                            error ? error.message() : "it exists"),
                "name an --output where you may write");
  }
  try {
    create_file(posix_io(), partial / kOwnerFile, to_text(this_process()));
  } catch (...) {
    fs::remove_all(partial, error);
    throw;
  }
  return partial;
}

void disown_partial_directory(const fs::path& partial) {
  std::error_code ignored;
  fs::remove(partial / kOwnerFile, ignored);
}

PartialDirectory::PartialDirectory(const fs::path& output,
                                   const std::function<void(const std::string&)>& note)
    : output_(output.lexically_normal()) {
  if (!output_.has_filename()) output_ = output_.parent_path();  // "out/" names the same directory as "out"
  std::error_code error;
  if (fs::exists(fs::symlink_status(output_, error)) &&
      !(fs::is_directory(output_, error) && fs::is_empty(output_, error))) {
    throw Error(ExitCode::kUsage, fmt::format("{}: exists already", output_.string()),
                "name a new directory, or remove this one");
  }
  try {
    make(note);
  } catch (...) {
    remove();
    throw;
  }
}

void PartialDirectory::make(const std::function<void(const std::string&)>& note) {
  std::error_code error;
  for (fs::path parent = parent_of(output_); !fs::exists(parent, error); parent = parent_of(parent))
    made_parent_ = parent;
  fs::create_directories(parent_of(output_), error);
  partial_ = make_partial_directory(output_, note);
}

PartialDirectory::~PartialDirectory() {
  if (!partial_.empty()) remove();
}

void PartialDirectory::remove() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
  if (made_parent_.empty()) return;
  for (fs::path parent = parent_of(output_);; parent = parent_of(parent)) {
    // Fails if others have put something there meanwhile.
    posix_io().rmdir(parent);
    if (parent == made_parent_) return;
  }
}

void PartialDirectory::rename_to_output() {
  disown_partial_directory(partial_);
  // The entries must be on the disk before the name is: a power loss must not leave an empty data set.
  sync_directory(partial_);
  std::error_code error;
  fs::rename(partial_, output_, error);  // replaces an empty directory
  if (error) fail(ExitCode::kStorage, "{}: cannot be put in place: {}", output_.string(), error.message());
  partial_.clear();
  sync_directory(parent_of(output_));
}

}  // namespace ripstop
