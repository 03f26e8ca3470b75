#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace ripstop {

/// Reads the regular files and links of a .tar, .tar.gz or .tgz one after another, in bounded memory. A file
/// may hold several archives. Throws the errors of UnpackedInput, and Error(kInputData) if an archive is
/// empty, damaged, cut short or lacks the end mark of tar.
class TarInput {
 public:
  explicit TarInput(const std::filesystem::path& path);
  ~TarInput();
  TarInput(const TarInput&) = delete;
  TarInput& operator=(const TarInput&) = delete;

  /// Moves to the next regular file or link. Returns false if there is none.
  bool next();
  /// If the current entry is a hard or symbolic link, the path of its target inside the archive, lexically
  /// normal; else empty.
  const std::string& link() const;
  /// Path of the current file inside the archive.
  const std::string& name() const;
  /// The current file's bytes. Throws Error(kInputData) if there are more than 64 MiB.
  std::string content();
  /// Bytes of the archive read so far, before unpacking.
  int64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
