// Output that appears complete or not at all: it is written beside its final place, and what killed processes
// leave is told from it.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "data/files/io.h"

namespace ripstop {

/// Makes the directory OUTPUT.partial-PID, with a file OWNER that names this process, and returns its path.
/// Before that, removes directories OUTPUT.partial-* whose process is known to have ended. `note` gets a text
/// about each of them, and about those whose process cannot be seen from this host, which stay. Throws
/// Error(kUsage) if a process makes `output` now, Error(kStorage) if it cannot make the directory.
std::filesystem::path make_partial_directory(Io& io, const std::filesystem::path& output,
                                             const std::function<void(const std::string&)>& note = {});

/// Takes OWNER away: what is left in `partial` is complete, and no later process removes it.
void disown_partial_directory(Io& io, const std::filesystem::path& partial);

/// A directory to fill beside its final place: OUTPUT.partial-PID/content, next to OWNER.
/// `rename_to_output` commits it; the destructor removes it if that has not happened, with the parents that
/// were made for it. A process that is killed leaves it behind, and the next one for the same output
/// removes it, whenever that was: OUTPUT is the renamed `content`, so OWNER goes last.
class PartialDirectory {
 public:
  /// Makes OUTPUT's parents and the directory (make_partial_directory). `io` must outlive it. Throws
  /// Error(kUsage) if `output` exists and is not an empty directory, or if a process makes it now;
  /// Error(kStorage) if it cannot make the directory.
  PartialDirectory(Io& io, const std::filesystem::path& output,
                   const std::function<void(const std::string&)>& note = {});
  ~PartialDirectory();
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;

  /// The directory to write to.
  const std::filesystem::path& path() const { return content_; }
  std::filesystem::path operator/(const std::string& name) const { return content_ / name; }
  /// The directory that OUTPUT will lie in.
  std::filesystem::path folder() const;

  /// The commit. Every file in the directory must have been synced. Throws Error(kStorage); then the
  /// destructor leaves nothing.
  void rename_to_output();

 private:
  void make(const std::function<void(const std::string&)>& note);
  void remove();

  Io& io_;
  std::filesystem::path output_, partial_, content_;
  std::filesystem::path made_parent_;  // the topmost that did not exist; empty if all did
};

}  // namespace ripstop
