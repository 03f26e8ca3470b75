#include "train/commands/fatal_line.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace ripstop {
namespace {

std::string quoted(const std::string& text) {
  using Json = nlohmann::json;
  // Paths may hold any byte, and a failure must not fail while it is told: replace, do not throw.
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A message of do_and_agree() about one rank begins with its number. The line names it already.
std::string without_rank(const Error& error, int64_t rank) {
  const std::string what = error.what(), prefix = fmt::format("rank {}: ", rank);
  return what.starts_with(prefix) ? what.substr(prefix.size()) : what;
}

// "error: " in a color, if the terminal has some.
std::string labelled(const std::string& label, const char* color, const std::string& text,
                     const Terminal& terminal) {
  return (terminal.colors ? fmt::format("\x1b[{}m{}\x1b[0m ", color, label) : label + " ") +
         visible_text(text);
}

}  // namespace

std::string fatal_line(const Error& error, int64_t rank) {
  std::string line =
      fmt::format("FATAL code={} rank={} step={} what={}", static_cast<int>(error.code()), rank,
                  error.step() ? std::to_string(*error.step()) : "-", quoted(without_rank(error, rank)));
  if (!error.hint().empty()) line += " hint=" + quoted(error.hint());
  return line;
}

std::string error_text(const Error& error, int64_t rank, const Terminal& terminal) {
  std::string where;
  if (error.step()) where = fmt::format("step {}", *error.step());
  if (rank != 0) where += fmt::format("{}rank {}", where.empty() ? "" : ", ", rank);
  const std::string what = without_rank(error, rank);
  std::string text = labelled("error:", "1;31", where.empty() ? what : where + ": " + what, terminal);
  if (!error.hint().empty()) text += "\n" + labelled("hint:", "1", error.hint(), terminal);
  return text;
}

}  // namespace ripstop
