// Output that appears complete or not at all: it is written to a partial directory beside its final place. A
// later process recognizes and removes the partial directories of killed processes.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "data/files/io.h"

namespace ripstop {

/// Makes the directory OUTPUT.partial-PID with a file OWNER that names this process, and returns its path.
/// First removes each OUTPUT.partial-* whose process has ended; keeps those whose process this host cannot
/// see. Calls `note` with a text about each of both kinds. Throws Error(kUsage) if a running process makes
/// `output`, Error(kStorage) if it cannot make the directory.
std::filesystem::path make_partial_directory(Io& io, const std::filesystem::path& output,
                                             const std::function<void(const std::string&)>& note = {});

/// Removes OWNER when the files in `partial` are complete: no later process will remove them.
void disown_partial_directory(Io& io, const std::filesystem::path& partial);

/// A directory to fill: OUTPUT.partial-PID/content, next to OWNER. `rename_to_output` renames it to OUTPUT;
/// without that call the destructor removes it, with the parents that were made for it. If the process is
/// killed, the next process with the same output removes it: OWNER outlives `content`.
class PartialDirectory {
 public:
  /// Makes the parents of `output` and the directory (make_partial_directory). `io` must outlive it. Throws
  /// also Error(kUsage) if `output` exists and is not an empty directory.
  PartialDirectory(Io& io, const std::filesystem::path& output,
                   const std::function<void(const std::string&)>& note = {});
  ~PartialDirectory();
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;

  /// The directory to write to.
  const std::filesystem::path& path() const { return content_; }
  std::filesystem::path operator/(const std::string& name) const { return content_ / name; }
  /// The parent of OUTPUT.
  std::filesystem::path folder() const;

  /// Commits the directory, whose files must be synced. Throws Error(kStorage); then the destructor still
  /// removes everything.
  void rename_to_output();

 private:
  void make(const std::function<void(const std::string&)>& note);
  void remove();

  Io& io_;
  std::filesystem::path output_, partial_, content_;
  std::filesystem::path made_parent_;  // the topmost parent that was made; empty if all existed
};

}  // namespace ripstop
