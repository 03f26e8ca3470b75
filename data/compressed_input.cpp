#include "data/compressed_input.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <string_view>

#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr int64_t kMostLineBytes = int64_t{64} << 20;
constexpr int64_t kMostEntryBytes = int64_t{64} << 20;
/// Real text packs to a tenth. What unpacks to this much, and to this many times its size, is an attack.
constexpr int64_t kBombBytes = int64_t{16} << 20;
constexpr int64_t kBombRatio = 1000;

enum class Container { kNone, kTar };

/// A libarchive reader of one file.
class Archive {
 public:
  Archive(const std::filesystem::path& path, Container container)
      : path_(path.string()), owner_(archive_read_new(), archive_read_free), archive_(owner_.get()) {
    RIPSTOP_CHECK(archive_ != nullptr, "libarchive has no memory");
    archive_read_support_filter_gzip(archive_);
    if (container == Container::kTar) {
      archive_read_support_format_tar(archive_);
    } else {
      archive_read_support_format_raw(archive_);
    }
    if (archive_read_open_filename(archive_, path.c_str(), 1 << 16) != ARCHIVE_OK) refuse();
  }

  /// The next entry, or nothing at the end.
  archive_entry* next_entry() {
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(archive_, &entry);
    if (result == ARCHIVE_EOF) return nullptr;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) refuse();
    return entry;
  }
  /// Up to `bytes` bytes of the entry; 0 at its end.
  int64_t read(char* out, int64_t bytes) {
    const la_ssize_t got = archive_read_data(archive_, out, static_cast<size_t>(bytes));
    if (got < 0) refuse();
    const int64_t unpacked = archive_filter_bytes(archive_, 0), packed = archive_filter_bytes(archive_, -1);
    if (unpacked > kBombBytes && unpacked / kBombRatio > packed) {
      fail(ExitCode::kInputData, "{}: {} bytes unpack to more than {}: this is no text", path_, packed,
           unpacked);
    }
    return got;
  }
  int64_t bytes_read() const { return archive_filter_bytes(archive_, -1); }

 private:
  [[noreturn]] void refuse() {
    const char* why = archive_error_string(archive_);
    std::string text = why == nullptr ? "damaged" : why;
    std::replace(text.begin(), text.end(), '\n', ' ');
    fail(ExitCode::kInputData, "{}: cannot be read: {}", path_, text);
  }
  std::string path_;
  std::unique_ptr<archive, decltype(&archive_read_free)> owner_;
  archive* archive_;
};

bool file_is_empty(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail(ExitCode::kInputData, "{}: no such file", path.string());
  if (!std::filesystem::is_regular_file(path, error))
    fail(ExitCode::kInputData, "{}: not a file", path.string());
  return std::filesystem::file_size(path, error) == 0 && !error;
}

}  // namespace

struct LineInput::State {
  std::string path;
  std::unique_ptr<Archive> archive;  // none for an empty file, which the raw format takes for damage
  std::string buffer;
  size_t at = 0;
  int64_t line_number = 0;
  bool ended = false;

  /// Puts more bytes behind what is left in the buffer; false at the end.
  bool refill() {
    if (ended) return false;
    buffer.erase(0, at);
    at = 0;
    constexpr size_t kPart = 1 << 18;
    const size_t had = buffer.size();
    buffer.resize(had + kPart);
    const int64_t got = archive->read(buffer.data() + had, kPart);
    buffer.resize(had + static_cast<size_t>(got));
    ended = got == 0;
    return !ended;
  }
};

LineInput::LineInput(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  state_->path = path.string();
  state_->ended = file_is_empty(path);
  if (state_->ended) return;
  state_->archive = std::make_unique<Archive>(path, Container::kNone);
  if (state_->archive->next_entry() == nullptr) state_->ended = true;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  state_->refill();
  if (std::string_view(state_->buffer).starts_with(kByteOrderMark)) state_->at = kByteOrderMark.size();
}

LineInput::~LineInput() = default;

bool LineInput::next(std::string& line) {
  State& s = *state_;
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
  if (file_is_empty(path)) fail(ExitCode::kInputData, "{}: the archive is empty", path.string());
  state_->archive = std::make_unique<Archive>(path, Container::kTar);
}

TarInput::~TarInput() = default;

bool TarInput::next() {
  for (;;) {
    archive_entry* entry = state_->archive->next_entry();
    if (entry == nullptr) return false;
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    const char* name = archive_entry_pathname(entry);
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
    constexpr size_t kPart = 1 << 16;
    const size_t had = bytes.size();
    bytes.resize(had + kPart);
    const int64_t got = state_->archive->read(bytes.data() + had, kPart);
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
