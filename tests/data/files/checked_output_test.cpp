#include "data/files/checked_output.h"

#include <gtest/gtest.h>

#include "data/files/hash.h"
#include "tests/data/fault_io.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

// Makes three writes that cover the file, and reads all back.
void write_and_read_back(Io& io, const std::filesystem::path& path) {
  CheckedOutput file(io, path);
  const std::string text(10'000, 'x');
  std::vector<WrittenBytes> written;
  for (const int64_t offset : {4'000, 0, 9'000})
    written.push_back(file.write_at(offset, text.data() + offset,
                                    offset == 4'000   ? 5'000
                                    : offset == 9'000 ? 1'000
                                                      : 4'000));
  std::vector<char> buffer;
  for (const WrittenBytes& bytes : written) {
    file.read_back(bytes, buffer);
    EXPECT_EQ(bytes.hash, hash64(text.data() + bytes.offset, bytes.bytes));
    EXPECT_EQ(std::string(buffer.data(), static_cast<size_t>(bytes.bytes)),
              std::string(static_cast<size_t>(bytes.bytes), 'x'));
  }
  file.sync_and_close();
}

std::string refusal(Io& io) {
  const ScratchDirectory scratch;
  const auto write = [&] {
    write_and_read_back(io, scratch / "file");
    EXPECT_EQ(read_bytes(scratch / "file"), std::string(10'000, 'x'));
  };
  return what_of(write, ExitCode::kStorage);
}

TEST(CheckedOutput, ReadsBackWhatWasWritten) {
  FaultIo io;
  io.syncs = true;
  EXPECT_EQ(refusal(io), "");
  const int64_t calls = io.calls;
  for (const FaultIo::Kind kind : {FaultIo::Kind::kInterrupted, FaultIo::Kind::kShort})
    for (int64_t at = 0; at < calls; ++at) {
      FaultIo failing(kind, at);
      EXPECT_EQ(refusal(failing), "") << at;
    }
}

TEST(CheckedOutput, FindsAWrongBitOfAnyWrite) {
  int64_t found = 0;
  FaultIo counting;
  EXPECT_EQ(refusal(counting), "");
  for (int64_t at = 0; at < counting.calls; ++at) {
    FaultIo io(FaultIo::Kind::kFlip, at);
    const std::string error = refusal(io);
    if (io.flips == 0) continue;
    EXPECT_HAS(error, "are not what was written");
    ++found;
  }
  EXPECT_EQ(found, 3);
}

// A failed write shows once, in wait_written.
TEST(CheckedOutput, AFailingDeviceIsNotForgotten) {
  class BadDevice : public Io {
   public:
    int wait_written(int, int64_t, int64_t) override {
      errno = EIO;
      return -1;
    }
  } io;
  EXPECT_HAS(refusal(io), "cannot write: Input/output error");
}

}  // namespace
}  // namespace ripstop
