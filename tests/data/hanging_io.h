// HangingIo: a file system whose writes hang until the test lets them return.
#pragma once
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "data/files/io.h"

namespace ripstop {

/// Several threads may call.
class HangingIo : public Io {
 public:
  std::atomic<bool> hangs = false;
  std::string name = {};  ///< of the files that hang; empty: all

  ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) override {
    const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file));
    while (hangs && (name.empty() || path.filename() == name)) ::usleep(1000);
    return Io::pwrite(file, bytes, count, offset);
  }
};

}  // namespace ripstop
