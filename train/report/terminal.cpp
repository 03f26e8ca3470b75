#include "train/report/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "model/core/number.h"
#include "parallel/launcher.h"

namespace ripstop {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Nothing if nobody tells.
std::optional<bool> told_by_launcher(int stream) {
  const char* told = std::getenv("RIPSTOP_TERMINAL");
  if (told == nullptr) return was_launched() ? std::optional(false) : std::nullopt;
  return std::string_view(told).find(static_cast<char>('0' + stream)) != std::string_view::npos;
}

int64_t width_of(int stream) {
  winsize size{};
  // A pseudo-terminal that a launcher made has no size.
  if (ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return parse_whole_number(variable("COLUMNS")).value_or(0);
}

}  // namespace

Terminal terminal_of(std::FILE* stream) {
  const int number = fileno(stream);
  const std::optional<bool> told = told_by_launcher(number);
  if (!told.value_or(isatty(number) == 1)) return {};
  Terminal terminal{.is_terminal = true, .width = width_of(number)};
  terminal.rewrites = !variable("TERM").empty() && variable("TERM") != "dumb";
  terminal.colors = terminal.rewrites && variable("NO_COLOR").empty();
  return terminal;
}

}  // namespace ripstop
