// PartialDirectory: output that appears complete or not at all. It is written to a partial directory beside
// its final place. A later process recognizes and removes the partial directories of killed processes.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "data/files/io.h"

namespace ripstop {

/// Makes the directory OUTPUT.partial-PID with a file OWNER that names this process, and returns the path of
/// the directory. First removes each other OUTPUT.partial-* whose process has ended, and keeps each whose
/// process this host cannot see; calls note(text) about each of either kind.
/// Throws Error(kUsage) if a running process makes `output`.
/// Throws Error(kStorage) if the directory cannot be made.
std::filesystem::path make_partial_directory(Io& io, const std::filesystem::path& output,
                                             const std::function<void(const std::string&)>& note = {});

/// Removes OWNER from `partial`, whose files must be complete. From then on, no later process removes the
/// directory.
void disown_partial_directory(Io& io, const std::filesystem::path& partial);

/// A directory to fill: OUTPUT.partial-PID/content, next to OWNER. rename_to_output() renames it to OUTPUT.
/// Without that call, the destructor removes the directory, and the parents of OUTPUT that were made for it.
/// If the process is killed, the next process with the same output removes the directory, because OWNER is
/// still there.
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

  /// The directory to fill.
  const std::filesystem::path& path() const { return content_; }
  std::filesystem::path operator/(const std::string& name) const { return content_ / name; }
  /// The parent directory of OUTPUT.
  std::filesystem::path folder() const;

  /// Renames the directory to OUTPUT. Requires that its files are synced. Throws Error(kStorage); then the
  /// destructor still removes everything.
  void rename_to_output();

 private:
  void make(const std::function<void(const std::string&)>& note);
  void remove();

  Io& io_;
  std::filesystem::path output_, partial_, content_;
  std::filesystem::path made_parent_;  // the topmost parent of OUTPUT that was made; empty if all existed
};

}  // namespace ripstop
