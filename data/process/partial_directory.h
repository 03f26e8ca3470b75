// Output that appears complete or not at all: it is written beside its final place, and later processes
// remove the leftovers of killed processes.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "data/files/io.h"

namespace ripstop {

/// Makes OUTPUT.partial-PID with a file OWNER that names this process, and returns its path. First removes
/// each OUTPUT.partial-* whose process has ended. Keeps each whose process is unknown or out of this host's
/// sight. Calls note(text) for both kinds. Throws Error(kUsage) if a running process makes `output`,
/// Error(kStorage) if the directory cannot be made.
std::filesystem::path make_partial_directory(Io& io, const std::filesystem::path& output,
                                             const std::function<void(const std::string&)>& note = {});

/// Removes OWNER from `partial`, whose files must be complete. Later processes then keep the directory.
void disown_partial_directory(Io& io, const std::filesystem::path& partial);

/// A directory to fill: OUTPUT.partial-PID/content, next to OWNER. rename_to_output() renames it to OUTPUT.
/// Without that call, the destructor removes the directory and the parents of OUTPUT that were made for it.
class PartialDirectory {
 public:
  /// Makes the missing parents of `output` and the partial directory. `io` must outlive this object. Throws
  /// the errors of make_partial_directory(), and Error(kUsage) if `output` exists and is not an empty
  /// directory.
  PartialDirectory(Io& io, const std::filesystem::path& output,
                   const std::function<void(const std::string&)>& note = {});
  ~PartialDirectory();
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;

  const std::filesystem::path& path() const { return content_; }
  std::filesystem::path operator/(const std::string& name) const { return content_ / name; }
  /// The parent directory of OUTPUT.
  std::filesystem::path folder() const;

  /// Renames the directory, whose files must be synced, to OUTPUT. Throws Error(kStorage); then the
  /// destructor still removes everything.
  void rename_to_output();

 private:
  void make(const std::function<void(const std::string&)>& note);
  void remove();

  Io& io_;
  std::filesystem::path output_, partial_, content_;
  std::filesystem::path made_parent_;  // topmost parent that was made; empty if no parent was made
};

}  // namespace ripstop
