// TarInput: reads the files in a tar archive, with libarchive.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace ripstop {

/// Reads the regular files of a .tar, .tar.gz or .tgz one after another, in bounded memory. Reads
/// concatenated archives, too. All members throw the errors of UnpackedInput, and Error(kInputData) if the
/// archive is damaged, cut short or lacks the end mark of tar.
class TarInput {
 public:
  explicit TarInput(const std::filesystem::path& path);
  ~TarInput();
  TarInput(const TarInput&) = delete;
  TarInput& operator=(const TarInput&) = delete;

  /// Moves to the next regular file. Returns false if there is none.
  bool next();
  /// Path of the current file inside the archive.
  const std::string& name() const;
  /// Returns the bytes of the current file. Throws Error(kInputData) if there are more than 64 MiB.
  std::string content();
  /// Bytes of the archive read so far, before unpacking (UnpackedInput::bytes_read).
  int64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
