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

std::string cut_place(int64_t tokens, const Terminal& terminal) {
  return tokens == 0 ? "" : colored(kCutColor, fmt::format("<{} cut>", counted(tokens, "token")), terminal);
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
    line += fmt::format("  tokens: {}", view.document);
  } else {
    line += fmt::format("  tokens: {}, {}, {}", part_text("document", view.document, view.cut_document),
                        part_text("separator", view.separator, 0),
                        part_text("summary", view.summary, view.cut_summary));
  }
  return line + fmt::format("; {} in the loss", view.targets());
}

std::string example_text(const ExampleView& view, const Tokenizer& tokenizer, const Terminal& terminal) {
  const auto text = [&](int64_t begin, int64_t end) {
    return visible_tokens({view.token.begin() + begin, view.token.begin() + end}, tokenizer);
  };
  const auto marked = [&](const std::string& counts) {
    if (counts.empty() || terminal.colors) return colored(kCountedColor, counts, terminal);
    return "[[" + counts + "]]";
  };
  const auto part = [&](int64_t begin, int64_t end) {
    const int64_t counted_begin = std::clamp(view.first_target, begin, end);
    return text(begin, counted_begin) + marked(text(counted_begin, end));
  };
  const int64_t end = static_cast<int64_t>(view.token.size());
  const int64_t cut = view.cut_document > 0 ? view.document_end() : end;
  return part(0, cut) + cut_place(view.cut_document, terminal) + part(cut, end) +
         cut_place(view.cut_summary, terminal);
}

std::string counted_mark(const Terminal& terminal) {
  return terminal.colors ? "in bold green" : "between [[ and ]]";
}

}  // namespace ripstop
