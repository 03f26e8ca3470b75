#include "data/text/line_input.h"

#include <string_view>

#include "model/core/error.h"

namespace ripstop {
namespace {

// A hostile file must not fill the memory.
constexpr int64_t kMostLineBytes = int64_t{64} << 20;

}  // namespace

LineInput::LineInput(const std::filesystem::path& path) : input_(path) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  // A pipe may deliver the byte order mark in parts. Wait only while the bytes match the mark.
  while (buffer_.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(buffer_) && refill()) {
  }
  if (std::string_view(buffer_).starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
}

/// Drops the lines before at_ and appends the next bytes of the file. Returns false at the end of the file.
bool LineInput::refill() {
  buffer_.erase(0, at_);
  at_ = 0;
  const std::string_view block = input_.next_block();
  buffer_.append(block);
  return !block.empty();
}

bool LineInput::next(std::string& line) {
  // Search only new bytes: otherwise a line of many refills would take quadratic time.
  size_t searched = at_;
  for (;;) {
    const size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      line.assign(buffer_, at_, end - at_);
      at_ = end + 1;
      break;
    }
    const size_t pending = buffer_.size() - at_;
    if (static_cast<int64_t>(pending) > kMostLineBytes) {
      fail(ExitCode::kInputData, "{}:{}: a line over {} MiB", input_.name(), line_number_ + 1,
           kMostLineBytes >> 20);
    }
    if (!refill()) {
      if (at_ == buffer_.size()) return false;
      // The last line may lack its line end.
      line.assign(buffer_, at_, std::string::npos);
      at_ = buffer_.size();
      break;
    }
    searched = at_ + pending;
  }
  ++line_number_;
  return true;
}

}  // namespace ripstop
