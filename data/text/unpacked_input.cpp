#include "data/text/unpacked_input.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "data/files/file.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr size_t kPackedBytes = 1 << 16;
constexpr size_t kUnpackedBytes = 1 << 18;
/// A file is refused as hostile once it has unpacked to more than kBombBytes, and to more than kBombRatio
/// times the bytes read. Text unpacks to far less.
constexpr int64_t kBombBytes = int64_t{16} << 20;
constexpr int64_t kBombRatio = 1000;

/// The first two bytes of a gzip file. Source: RFC 1952.
constexpr std::array<unsigned char, 2> kMagic = {0x1f, 0x8b};

bool is_named_gzip(const std::string& name) {
  return name.ends_with(".gz") || name.ends_with(".tgz");
}

Descriptor open_input(const std::filesystem::path& path, const std::string& name) {
  if (path == "-") return {posix_io(), ::dup(STDIN_FILENO)};
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(status)) fail(ExitCode::kInputData, "{}: no such file", name);
  if (std::filesystem::is_directory(status))
    fail(ExitCode::kInputData, "{}: a directory, expected a file", name);
  Descriptor file(posix_io(), posix_io().open(path, O_RDONLY));
  if (file.value() < 0) fail(ExitCode::kInputData, "{}: cannot open: {}", name, std::strerror(errno));
  return file;
}

}  // namespace

struct UnpackedInput::State {
  explicit State(const std::filesystem::path& path)
      : name(path == "-" ? "standard input" : path.string()), file(open_input(path, name)) {
    Io::Status status;
    // Files below /proc state size 0, which must not become the limit.
    if (file.io().status(file.value(), status) == 0 && status.is_file && status.bytes > 0)
      most_packed = status.bytes;
  }
  ~State() {
    if (form == Form::kGzip) inflateEnd(&stream);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::string_view next_block();
  void find_form();
  bool refill(size_t keep = 0);
  bool begin_member();
  std::string_view inflate_some();
  [[noreturn]] void refuse(const std::string& what) const;

  const std::string name;
  const Descriptor file;
  enum class Form { kUnknown, kPlain, kGzip } form = Form::kUnknown;
  z_stream stream{};   ///< next_in and avail_in: the unread part of `packed`, also for plain files
  int64_t member = 0;  ///< current gzip member, from 1
  bool in_member = false;
  int64_t packed_count = 0, unpacked_count = 0;  ///< bytes read, and bytes unpacked, so far
  /// Size at opening, so that reading a growing file ends.
  int64_t most_packed = INT64_MAX;
  std::array<unsigned char, kPackedBytes> packed;
  std::array<char, kUnpackedBytes> unpacked;
};

void UnpackedInput::State::refuse(const std::string& what) const {
  throw Error(ExitCode::kInputData,
              fmt::format("{}: damaged gzip: {}, before byte {} of the file", name, what,
                          packed_count - static_cast<int64_t>(stream.avail_in)),
              "`gzip -t` checks it, too; copy or download the file again");
}

/// Keeps the first `keep` bytes of `packed` and reads the next bytes after them. Returns false at the end.
bool UnpackedInput::State::refill(size_t keep) {
  const int64_t most = std::min(std::ssize(packed) - static_cast<int64_t>(keep), most_packed - packed_count);
  for (int tries = 0;;) {
    const ssize_t got = file.io().read(file.value(), packed.data() + keep, static_cast<size_t>(most));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      wait_for_storage(name, "read", errno, tries);
      continue;
    }
    stream.next_in = packed.data();
    stream.avail_in = static_cast<uInt>(keep + static_cast<size_t>(got));
    packed_count += got;
    return got > 0;
  }
}

/// Sets `form` by the first two bytes. Waits for the second byte of a pipe only if the first is gzip's.
void UnpackedInput::State::find_form() {
  refill();
  if (stream.avail_in == 1 && packed[0] == kMagic[0]) refill(1);
  if (stream.avail_in >= 2 && packed[0] == kMagic[0] && packed[1] == kMagic[1]) {
    // 16: zlib accepts only gzip, and checks header, CRC-32 and length.
    const int result = inflateInit2(&stream, 16 + MAX_WBITS);
    RIPSTOP_CHECK(result == Z_OK, "zlib has no memory: {}", result);
    form = Form::kGzip;
    return;
  }
  if (is_named_gzip(name)) {
    throw Error(ExitCode::kInputData,
                fmt::format("{}: named as gzip, but {}", name,
                            packed_count == 0 ? "empty" : "does not begin as gzip does (bytes 1f 8b)"),
                "copy or download the file again; if it is plain text, rename it without .gz");
  }
  form = Form::kPlain;
}

/// Moves to the next gzip member. Returns false if there is none.
bool UnpackedInput::State::begin_member() {
  // Skip zeros: tapes pad files with them, and gzip accepts them.
  bool is_padded = false;
  for (;;) {
    if (stream.avail_in == 0 && !refill()) return false;
    if (*stream.next_in != 0) break;
    is_padded = true;
    ++stream.next_in;
    --stream.avail_in;
  }
  if (is_padded || *stream.next_in != kMagic[0])
    refuse(fmt::format("what follows member {} is no gzip", member));
  if (member > 0) inflateReset(&stream);
  ++member;
  in_member = true;
  return true;
}

std::string_view UnpackedInput::State::inflate_some() {
  while (in_member || begin_member()) {
    stream.next_out = reinterpret_cast<Bytef*>(unpacked.data());
    stream.avail_out = static_cast<uInt>(unpacked.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (result == Z_STREAM_END) in_member = false;
    // Z_BUF_ERROR: zlib needs more input.
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      refuse(fmt::format("{} in member {}", stream.msg != nullptr ? stream.msg : "no memory", member));
    const size_t got = unpacked.size() - stream.avail_out;
    unpacked_count += static_cast<int64_t>(got);
    if (unpacked_count > kBombBytes && unpacked_count / kBombRatio > packed_count) {
      fail(ExitCode::kInputData, "{}: {} bytes unpack to more than {}: this is not text", name, packed_count,
           unpacked_count);
    }
    if (got > 0) return {unpacked.data(), got};
    if (in_member && stream.avail_in == 0 && !refill())
      refuse(fmt::format("the file ends in the middle of member {}", member));
  }
  return {};
}

std::string_view UnpackedInput::State::next_block() {
  if (form == Form::kUnknown) find_form();
  if (form == Form::kGzip) return inflate_some();
  if (stream.avail_in == 0) refill();
  const std::string_view block(reinterpret_cast<const char*>(packed.data()), stream.avail_in);
  stream.avail_in = 0;
  return block;
}

UnpackedInput::UnpackedInput(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) {}
UnpackedInput::~UnpackedInput() = default;

std::string_view UnpackedInput::next_block() {
  return state_->next_block();
}
int64_t UnpackedInput::bytes_read() const {
  return state_->packed_count;
}
const std::string& UnpackedInput::name() const {
  return state_->name;
}

}  // namespace ripstop
