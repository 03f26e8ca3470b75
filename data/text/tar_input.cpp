#include "data/text/tar_input.h"

#include <archive.h>
#include <archive_entry.h>

#include <exception>
#include <string_view>

#include "data/text/unpacked_input.h"
#include "model/core/error.h"
#include "model/core/one_line.h"

namespace ripstop {
namespace {

// A hostile archive must not fill the memory.
constexpr int64_t kMostEntryBytes = int64_t{64} << 20;
constexpr size_t kReadBytes = 1 << 16;
/// An archive ends with two blocks of zeros; some writers make only one.
constexpr int64_t kTarBlockBytes = 512;

}  // namespace

struct TarInput::State {
  explicit State(const std::filesystem::path& path);

  archive_entry* next_entry();
  void check_end() const;
  [[noreturn]] void refuse() const;
  static la_ssize_t read(archive* reader, void* state, const void** bytes);

  UnpackedInput input;
  std::exception_ptr failure;  ///< an exception of `input`, stored because it must not pass through C code
  int64_t zeros = 0;           ///< zero bytes at the end of the bytes read so far
  int64_t bytes = 0;           ///< number of unpacked bytes so far
  std::unique_ptr<archive, decltype(&archive_read_free)> owner;
  archive* reader;
  std::string name;
  std::string link;
};

namespace {

/// The path of the file to which the entry `name` links (TarInput::link); empty if the entry is no link.
std::string link_of(archive_entry* entry, const std::filesystem::path& name) {
  if (const char* const file = archive_entry_hardlink(entry); file != nullptr)
    return std::filesystem::path(file).lexically_normal();
  const char* const file = archive_entry_symlink(entry);
  return file == nullptr ? "" : (name.parent_path() / file).lexically_normal().string();
}

}  // namespace

TarInput::State::State(const std::filesystem::path& path)
    : input(path), owner(archive_read_new(), archive_read_free), reader(owner.get()) {
  RIPSTOP_CHECK(reader != nullptr, "libarchive has no memory");
  // Only tar: each further format is more code that parses untrusted files. UnpackedInput unpacks gzip,
  // because libarchive does not check gzip's checksums.
  archive_read_support_format_tar(reader);
  // Without this option libarchive stops at the first end mark.
  archive_read_set_format_option(reader, "tar", "read_concatenated_archives", "1");
  if (archive_read_open(reader, this, nullptr, read, nullptr) != ARCHIVE_OK) refuse();
}

/// libarchive's callback: sets `bytes` and returns their number, 0 at the end, -1 on failure.
la_ssize_t TarInput::State::read(archive* reader, void* state, const void** bytes) {
  State& self = *static_cast<State*>(state);
  try {
    const std::string_view block = self.input.next_block();
    const size_t last = block.find_last_not_of('\0');
    const bool all_zeros = last == std::string_view::npos;
    self.zeros = (all_zeros ? self.zeros : 0) + std::ssize(block.substr(all_zeros ? 0 : last + 1));
    self.bytes += std::ssize(block);
    *bytes = block.data();
    return std::ssize(block);
  } catch (...) {
    self.failure = std::current_exception();
    archive_set_error(reader, EIO, "reading failed");
    return -1;
  }
}

void TarInput::State::refuse() const {
  if (failure) std::rethrow_exception(failure);
  if (bytes == 0) fail(ExitCode::kInputData, "{}: the archive is empty", input.name());
  const char* why = archive_error_string(reader);
  const std::string text = in_one_line(why == nullptr ? "damaged" : why);
  throw Error(ExitCode::kInputData, fmt::format("{}: cannot be read: {}", input.name(), text),
              "`tar -t` lists it; copy or download the file again");
}

archive_entry* TarInput::State::next_entry() {
  archive_entry* entry = nullptr;
  const int result = archive_read_next_header(reader, &entry);
  if (result == ARCHIVE_EOF) {
    check_end();
    return nullptr;
  }
  // Ignore warnings, such as about an odd owner or time.
  if (result != ARCHIVE_OK && result != ARCHIVE_WARN) refuse();
  return entry;
}

/// Refuses an archive cut off between two files, which libarchive does not notice.
void TarInput::State::check_end() const {
  if (failure) std::rethrow_exception(failure);
  if (zeros >= kTarBlockBytes) return;
  throw Error(ExitCode::kInputData,
              fmt::format("{}: cut short: tar's end mark is missing after {} bytes", input.name(), bytes),
              "copy or download the file again");
}

TarInput::TarInput(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) {}
TarInput::~TarInput() = default;

bool TarInput::next() {
  while (archive_entry* entry = state_->next_entry()) {
    const char* name = archive_entry_pathname(entry);
    // The name is null if the locale cannot represent it, as in the "C" locale of a batch job.
    if (name == nullptr) name = archive_entry_pathname_utf8(entry);
    if (name == nullptr) continue;
    state_->name = name;
    state_->link = link_of(entry, state_->name);
    if (archive_entry_filetype(entry) == AE_IFREG || !state_->link.empty()) return true;
  }
  return false;
}

const std::string& TarInput::link() const {
  return state_->link;
}

const std::string& TarInput::name() const {
  return state_->name;
}

std::string TarInput::content() {
  std::string bytes;
  for (;;) {
    const size_t had = bytes.size();
    bytes.resize(had + kReadBytes);
    const la_ssize_t got = archive_read_data(state_->reader, bytes.data() + had, kReadBytes);
    if (got < 0) state_->refuse();
    bytes.resize(had + static_cast<size_t>(got));
    if (got == 0) return bytes;
    if (static_cast<int64_t>(bytes.size()) > kMostEntryBytes) {
      fail(ExitCode::kInputData, "{}: {} is over {} MiB", state_->input.name(), state_->name,
           kMostEntryBytes >> 20);
    }
  }
}

int64_t TarInput::bytes_read() const {
  return state_->input.bytes_read();
}

}  // namespace ripstop
