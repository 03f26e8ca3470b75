#include "train/report/example_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "train/report/human_text.h"

namespace ripstop {
namespace {

constexpr const char* kCountedColor = "1;32";
constexpr const char* kCutColor = "1;33";

std::string colored(const char* color, const std::string& text, const Terminal& terminal) {
  return terminal.colors && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", color, text) : text;
}

std::string cut_place(const CutPlace& cut, const Terminal& terminal) {
  const std::string turns = cut.turns > 0 ? counted(cut.turns, "turn") + ", " : "";
  return colored(kCutColor, fmt::format("<{}{} cut>", turns, counted(cut.tokens, "token")), terminal);
}

// "document 431 (205 cut)".
std::string part_text(const char* name, int64_t tokens, int64_t cut) {
  return fmt::format("{} {}{}", name, tokens, cut > 0 ? fmt::format(" ({} cut)", cut) : "");
}

}  // namespace

std::string visible_tokens(const std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  std::string result, bytes;  // `bytes`: the pieces since the last special token
  for (const int32_t id : ids) {
    const TokenPiece piece = tokenizer.piece(id);
    bytes += piece.text;
    if (!piece.is_special) continue;
    result += visible_text(bytes) + visible_text(piece.name);
    bytes.clear();
  }
  return result + visible_text(bytes);
}

std::string example_line(const ExampleView& view, std::string_view id) {
  std::string line = fmt::format("example {}", view.example);
  if (view.pieces > 1) line += fmt::format(", piece {} of {}", view.piece + 1, view.pieces);
  // An id may have several lines.
  if (!id.empty()) line += "  id " + cut_to_width(id, 0);
  if (view.summary == 0) {
    line += "  " + part_text("tokens:", view.document, view.cut_document);
    if (view.turns > 0) line += part_text(", turns", view.turns, view.cut_turns());
  } else {
    line += fmt::format("  tokens: {}, {}, {}", part_text("document", view.document, view.cut_document),
                        part_text("separator", view.separator, 0),
                        part_text("summary", view.summary, view.cut_summary));
  }
  return line + fmt::format("; {} in the loss", view.target_count());
}

std::string example_text(const ExampleView& view, const Tokenizer& tokenizer, const Terminal& terminal) {
  const auto text = [&](int64_t begin, int64_t end) {
    return visible_tokens({view.token.begin() + begin, view.token.begin() + end}, tokenizer);
  };
  const auto marked = [&](const std::string& counts) {
    if (terminal.colors) return colored(kCountedColor, counts, terminal);
    return "[[" + counts + "]]";
  };
  std::string result;
  int64_t at = 0;
  const auto add = [&](int64_t end) {
    for (const TokenRange& range : view.targets) {
      const int64_t begin = std::clamp(range.begin, at, end), stop = std::clamp(range.end, begin, end);
      if (begin == stop) continue;
      result += text(at, begin) + marked(text(begin, stop));
      at = stop;
    }
    result += text(at, end);
    at = end;
  };
  for (const CutPlace& cut : view.cuts) {
    add(cut.at);
    result += cut_place(cut, terminal);
  }
  add(std::ssize(view.token));
  return result;
}

std::string counted_mark(const Terminal& terminal) {
  return terminal.colors ? "in bold green" : "between [[ and ]]";
}

}  // namespace ripstop
