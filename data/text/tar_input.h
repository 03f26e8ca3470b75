// TarInput: the files in an archive. The only place that knows libarchive.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace ripstop {

/// The regular files inside a .tar, .tar.gz or .tgz, one after another, in bounded memory. Archives that were
/// put one behind another are read whole. All members throw the errors of UnpackedInput, and
/// Error(kInputData) if the archive is damaged, cut short or lacks tar's end mark.
class TarInput {
 public:
  explicit TarInput(const std::filesystem::path& path);
  ~TarInput();
  TarInput(const TarInput&) = delete;
  TarInput& operator=(const TarInput&) = delete;

  /// Moves to the next regular file; false at the end.
  bool next();
  /// Path of the entry inside the archive.
  const std::string& name() const;
  /// All its bytes. Throws Error(kInputData) if there are more than 64 MiB.
  std::string content();
  /// Bytes of the archive read so far, counted as they lie on disk.
  int64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
