// TarInput: the files in an archive. Wraps libarchive.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace ripstop {

/// Reads the regular files of a .tar, .tar.gz or .tgz one after another, in bounded memory; of concatenated
/// archives, too. All members throw the errors of UnpackedInput, and Error(kInputData) if the archive is
/// damaged, cut short or lacks tar's end mark.
class TarInput {
 public:
  explicit TarInput(const std::filesystem::path& path);
  ~TarInput();
  TarInput(const TarInput&) = delete;
  TarInput& operator=(const TarInput&) = delete;

  /// Moves to the next regular file; false at the end.
  bool next();
  /// Path of the file inside the archive.
  const std::string& name() const;
  /// The bytes of the file. Throws Error(kInputData) if there are more than 64 MiB.
  std::string content();
  /// UnpackedInput::bytes_read of the archive.
  int64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
