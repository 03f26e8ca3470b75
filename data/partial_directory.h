// PartialDirectory: a directory that appears complete or not at all.
#pragma once
#include <filesystem>
#include <string>

namespace ripstop {

/// A directory to fill beside its final place. `rename_to_output` commits it; the destructor removes it if
/// that has not happened.
class PartialDirectory {
 public:
  /// Makes OUTPUT.partial-PID, and OUTPUT's parents. Throws Error(kUsage) if `output` exists and is not an
  /// empty directory, Error(kStorage) if it cannot make the directory.
  explicit PartialDirectory(const std::filesystem::path& output);
  ~PartialDirectory();
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;

  /// The directory to write to.
  const std::filesystem::path& path() const { return partial_; }
  std::filesystem::path operator/(const std::string& name) const { return partial_ / name; }

  /// The commit. Every file in the directory must have been synced. Throws Error(kStorage).
  void rename_to_output();

 private:
  std::filesystem::path output_, partial_;
};

}  // namespace ripstop
