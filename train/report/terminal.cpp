#include "train/report/terminal.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "data/process/process_identity.h"
#include "data/text/utf8.h"
#include "model/core/number.h"
#include "parallel/launch_environment.h"

namespace ripstop {
namespace {

// Whether the launcher says that `stream` ends at a terminal; nullopt without a launcher.
std::optional<bool> told_by_launcher(int stream) {
  const char* told = std::getenv("RIPSTOP_TERMINAL");
  if (told == nullptr) return was_launched() ? std::optional(false) : std::nullopt;
  return std::string_view(told).find(static_cast<char>('0' + stream)) != std::string_view::npos;
}

int64_t width_of(int stream) {
  winsize size{};
  // A launcher's pseudo-terminal has no size.
  if (ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return parse_whole_number(environment_variable("COLUMNS")).value_or(0);
}

// Whether `letter` is a C1 control, separates lines or paragraphs, or changes the direction of writing.
bool is_unseen(uint32_t letter) {
  return (letter >= 0x80 && letter < 0xA0) || letter == 0x061C || (letter >= 0x200E && letter <= 0x200F) ||
         (letter >= 0x2028 && letter <= 0x202E) || (letter >= 0x2066 && letter <= 0x2069);
}

}  // namespace

Terminal terminal_of(std::FILE* stream) {
  const int number = fileno(stream);
  const std::optional<bool> told = told_by_launcher(number);
  if (!told.value_or(isatty(number) == 1)) return {};
  Terminal terminal{.is_terminal = true, .width = width_of(number)};
  const std::string kind = environment_variable("TERM");
  terminal.rewrites = !kind.empty() && kind != "dumb";
  terminal.colors = terminal.rewrites && environment_variable("NO_COLOR").empty();
  return terminal;
}

std::string visible_text(std::string_view bytes) {
  std::string result;
  while (!bytes.empty()) {
    const size_t size = sequence_bytes(bytes);
    const std::string_view letter = bytes.substr(0, std::max<size_t>(size, 1));
    const auto byte = static_cast<unsigned char>(letter[0]);
    if (size == 0)
      result += fmt::format("<0x{:02X}>", byte);
    else if (byte == '\t' || byte == '\r')
      result += byte == '\t' ? "\\t" : "\\r";
    else if ((byte < 0x20 && byte != '\n') || byte == 0x7F)
      result += fmt::format("\\x{:02x}", byte);
    else if (is_unseen(code_point(letter)))
      result += fmt::format("\\u{:04x}", code_point(letter));
    else
      result += letter;
    bytes.remove_prefix(letter.size());
  }
  return result;
}

std::string cut_to_width(std::string_view text, int64_t width) {
  std::string line = visible_text(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  int64_t columns = 0;
  for (size_t at = 0; width > 0 && at < line.size(); ++at) {
    const auto byte = static_cast<unsigned char>(line[at]);
    // A letter of three or four bytes, as in Chinese, may take two columns. Its first byte counts for all.
    columns += (byte & 0xC0U) == 0x80 ? 0 : byte < 0xE0 ? 1 : 2;
    if (columns > width) return line.substr(0, at);
  }
  return line;
}

}  // namespace ripstop
