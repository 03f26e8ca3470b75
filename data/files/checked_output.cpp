#include "data/files/checked_output.h"

#include "data/files/hash.h"

namespace ripstop {

CheckedOutput::CheckedOutput(Io& io, const std::filesystem::path& path, OutputFile::Mode mode)
    : output_(io, path, mode), input_(io, path) {}

WrittenBytes CheckedOutput::write_at(int64_t offset, const void* data, int64_t bytes) {
  const WrittenBytes written{offset, bytes, hash64(data, bytes)};
  output_.write_at(offset, data, bytes);
  output_.start_writing(offset, bytes);
  return written;
}

void CheckedOutput::read_back(const WrittenBytes& written, std::vector<char>& buffer) const {
  output_.wait_written(written.offset, written.bytes);
  // The page cache would return the bytes even if the device stored others.
  input_.forget(written.offset, written.bytes);
  require_hash(input_, written, buffer);
}

void CheckedOutput::sync_and_close() {
  output_.sync();
  output_.close();
}

void require_hash(const InputFile& file, const WrittenBytes& written, std::vector<char>& buffer) {
  if (std::ssize(buffer) < written.bytes) buffer.resize(static_cast<size_t>(written.bytes));
  file.read_at(written.offset, buffer.data(), written.bytes);
  if (hash64(buffer.data(), written.bytes) != written.hash)
    throw Error(ExitCode::kStorage,
                fmt::format("{}: bytes {} to {} are not what was written", file.path().string(),
                            written.offset, written.offset + written.bytes),
                "the disk, or the way to it, changes data: try another one");
}

}  // namespace ripstop
