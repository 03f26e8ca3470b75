#include "data/compressed_input.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "model/core/error.h"

namespace ripstop {
namespace {

// A line and an entry are held in memory. Limits keep a hostile file from taking all of it.
constexpr int64_t kMostLineBytes = int64_t{64} << 20;
constexpr int64_t kMostEntryBytes = int64_t{64} << 20;
/// Real text packs to a tenth. What unpacks to this much, and to this many times its size, is an attack.
constexpr int64_t kBombBytes = int64_t{16} << 20;
constexpr int64_t kBombRatio = 1000;

/// The content of a file, compressed or not: text, text that may be empty, or an archive of files.
enum class Container { kText, kTextOrNothing, kTar };

constexpr size_t kReadBytes = 1 << 16;

/// A pipe for libarchive. Its own reader of files reads a pipe to its end when it is closed, and would wait
/// there for a writer that stays open.
struct Pipe {
  explicit Pipe(const std::filesystem::path& path)
      : descriptor(path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Pipe() {
    if (descriptor >= 0) ::close(descriptor);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  /// libarchive's callback: bytes that have arrived, 0 at the end, -1 if reading fails.
  static la_ssize_t read(archive* reader, void* pipe, const void** bytes) {
    Pipe& self = *static_cast<Pipe*>(pipe);
    *bytes = self.buffer.data();
    for (;;) {
      const ssize_t got = ::read(self.descriptor, self.buffer.data(), self.buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) archive_set_error(reader, errno, "%s", std::strerror(errno));
      return got;
    }
  }

  int descriptor;
  std::array<char, kReadBytes> buffer{};
};

/// A libarchive reader of one file, or of standard input if `path` is "-". `name` is for messages.
class Archive {
 public:
  Archive(const std::filesystem::path& path, std::string name, Container container)
      : name_(std::move(name)), owner_(archive_read_new(), archive_read_free), archive_(owner_.get()) {
    RIPSTOP_CHECK(archive_ != nullptr, "libarchive has no memory");
    // Only gzip: each further format is more code that parses files of strangers.
    archive_read_support_filter_gzip(archive_);
    if (container == Container::kTar) {
      archive_read_support_format_tar(archive_);
    } else {
      // "raw" takes any bytes as an archive with one entry.
      archive_read_support_format_raw(archive_);
    }
    if (container == Container::kTextOrNothing) archive_read_support_format_empty(archive_);
    std::error_code ignored;
    if (path == "-" || !std::filesystem::is_regular_file(path, ignored)) {
      pipe_ = std::make_unique<Pipe>(path);
      if (pipe_->descriptor < 0)
        fail(ExitCode::kInputData, "{}: cannot open: {}", name_, std::strerror(errno));
      if (archive_read_open(archive_, pipe_.get(), nullptr, Pipe::read, nullptr) != ARCHIVE_OK) refuse();
    } else if (archive_read_open_filename(archive_, path.c_str(), kReadBytes) != ARCHIVE_OK) {
      refuse();
    }
  }

  /// The next entry; nullptr at the end.
  archive_entry* next_entry() {
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(archive_, &entry);
    if (result == ARCHIVE_EOF) return nullptr;
    // A warning is about facts that are not used here, such as an odd owner or time.
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) refuse();
    return entry;
  }
  /// Reads up to `bytes` bytes of the entry, waiting until they are there; returns 0 at its end.
  int64_t read(char* out, int64_t bytes) {
    const la_ssize_t got = archive_read_data(archive_, out, static_cast<size_t>(bytes));
    if (got < 0) refuse();
    refuse_bomb();
    return got;
  }
  /// The bytes of the entry that have arrived, valid until the next call; waits for some. Empty at its end.
  std::string_view next_block() {
    const void* bytes = nullptr;
    size_t count = 0;
    la_int64_t offset = 0;
    const int result = archive_read_data_block(archive_, &bytes, &count, &offset);
    if (result != ARCHIVE_OK && result != ARCHIVE_EOF) refuse();
    refuse_bomb();
    return {static_cast<const char*>(bytes), result == ARCHIVE_EOF ? 0 : count};
  }
  int64_t bytes_read() const { return archive_filter_bytes(archive_, -1); }

 private:
  /// Checked after each block, so that a bomb is noticed before it fills memory or takes hours.
  void refuse_bomb() const {
    const int64_t unpacked = archive_filter_bytes(archive_, 0), packed = archive_filter_bytes(archive_, -1);
    if (unpacked > kBombBytes && unpacked / kBombRatio > packed) {
      fail(ExitCode::kInputData, "{}: {} bytes unpack to more than {}: this is not text", name_, packed,
           unpacked);
    }
  }
  [[noreturn]] void refuse() const {
    const char* why = archive_error_string(archive_);
    std::string text = why == nullptr ? "damaged" : why;
    std::replace(text.begin(), text.end(), '\n', ' ');
    fail(ExitCode::kInputData, "{}: cannot be read: {}", name_, text);
  }
  std::string name_;
  std::unique_ptr<Pipe> pipe_;  // before the reader, which uses it until it is freed
  std::unique_ptr<archive, decltype(&archive_read_free)> owner_;
  archive* archive_;
};

/// Throws Error(kInputData) if `path` is missing or a directory.
std::filesystem::file_status checked_status(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) fail(ExitCode::kInputData, "{}: no such file", path.string());
  if (std::filesystem::is_directory(status))
    fail(ExitCode::kInputData, "{}: a directory, expected a file", path.string());
  return status;
}

/// Also checks `path` as above.
bool is_empty_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(checked_status(path)) &&
         std::filesystem::file_size(path, error) == 0 && !error;
}

}  // namespace

struct LineInput::State {
  std::string path;
  std::unique_ptr<Archive> archive;  // null for an empty file
  std::string buffer;
  size_t at = 0;
  int64_t line_number = 0;
  bool is_pipe = false;
  bool ended = false;

  /// Appends the next bytes to those left in the buffer; false at the end.
  bool refill() {
    if (ended) return false;
    buffer.erase(0, at);
    at = 0;
    const size_t had = buffer.size();
    if (is_pipe) {
      // A line may be all that its writer sends before it waits: take what is there.
      buffer.append(archive->next_block());
    } else {
      constexpr size_t kPart = 1 << 18;
      buffer.resize(had + kPart);
      buffer.resize(had + static_cast<size_t>(archive->read(buffer.data() + had, kPart)));
    }
    ended = buffer.size() == had;
    return !ended;
  }
};

LineInput::LineInput(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  const bool is_standard_input = path == "-";
  state_->path = is_standard_input ? "standard input" : path.string();
  // libarchive takes an empty text for damage. It can be told to accept one, but then it also takes some
  // damaged gzip files for empty ones. So that is done only for pipes, whose length is not known.
  state_->ended = !is_standard_input && is_empty_file(path);
  if (state_->ended) return;
  state_->is_pipe = is_standard_input || !std::filesystem::is_regular_file(path);
  state_->archive = std::make_unique<Archive>(path, state_->path,
                                              state_->is_pipe ? Container::kTextOrNothing : Container::kText);
  if (state_->archive->next_entry() == nullptr) state_->ended = true;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  // A pipe may give the mark in parts. Do not wait for more once the first bytes rule it out.
  while (state_->buffer.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(state_->buffer) &&
         state_->refill()) {
  }
  if (std::string_view(state_->buffer).starts_with(kByteOrderMark)) state_->at = kByteOrderMark.size();
}

LineInput::~LineInput() = default;

bool LineInput::next(std::string& line) {
  State& s = *state_;
  // Search only what is new after a refill: a line of many refills would take quadratic time.
  size_t searched = s.at;
  for (;;) {
    const size_t end = s.buffer.find('\n', searched);
    if (end != std::string::npos) {
      line.assign(s.buffer, s.at, end - s.at);
      s.at = end + 1;
      break;
    }
    const size_t pending = s.buffer.size() - s.at;
    if (static_cast<int64_t>(pending) > kMostLineBytes) {
      fail(ExitCode::kInputData, "{}:{}: a line over {} MiB", s.path, s.line_number + 1,
           kMostLineBytes >> 20);
    }
    if (!s.refill()) {
      if (s.at == s.buffer.size()) return false;
      // The last line may lack its line end.
      line.assign(s.buffer, s.at, std::string::npos);
      s.at = s.buffer.size();
      break;
    }
    searched = s.at + pending;
  }
  ++s.line_number;
  return true;
}

int64_t LineInput::line_number() const {
  return state_->line_number;
}
int64_t LineInput::bytes_read() const {
  return state_->archive ? state_->archive->bytes_read() : 0;
}

struct TarInput::State {
  std::string path;
  std::unique_ptr<Archive> archive;
  std::string name;
};

TarInput::TarInput(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  state_->path = path.string();
  if (is_empty_file(path)) fail(ExitCode::kInputData, "{}: the archive is empty", path.string());
  state_->archive = std::make_unique<Archive>(path, path.string(), Container::kTar);
}

TarInput::~TarInput() = default;

bool TarInput::next() {
  for (;;) {
    archive_entry* entry = state_->archive->next_entry();
    if (entry == nullptr) return false;
    // Directories have no content, and links could lead out of the archive.
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    const char* name = archive_entry_pathname(entry);
    // The first call gives null for a name that the locale cannot show, as in the "C" locale of a batch job.
    if (name == nullptr) name = archive_entry_pathname_utf8(entry);
    if (name == nullptr) continue;
    state_->name = name;
    return true;
  }
}

const std::string& TarInput::name() const {
  return state_->name;
}

std::string TarInput::content() {
  std::string bytes;
  for (;;) {
    const size_t had = bytes.size();
    bytes.resize(had + kReadBytes);
    const int64_t got = state_->archive->read(bytes.data() + had, kReadBytes);
    bytes.resize(had + static_cast<size_t>(got));
    if (got == 0) return bytes;
    if (static_cast<int64_t>(bytes.size()) > kMostEntryBytes) {
      fail(ExitCode::kInputData, "{}: {} is over {} MiB", state_->path, state_->name, kMostEntryBytes >> 20);
    }
  }
}

int64_t TarInput::bytes_read() const {
  return state_->archive->bytes_read();
}

}  // namespace ripstop
