#include "train/report/example_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "data/text/utf8.h"
#include "train/report/human_text.h"
#include "train/report/screen_text.h"

namespace ripstop {
namespace {

constexpr const char* kCountedColor = "1;32";
constexpr const char* kCutColor = "1;33";

// The letter of two or three bytes that begins valid UTF-8 `text`, or 0 if it has one byte or four.
uint32_t wide_letter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  if (byte(0) >= 0xC0 && byte(0) < 0xE0) return (byte(0) & 0x1FU) << 6U | (byte(1) & 0x3FU);
  if (byte(0) >= 0xE0 && byte(0) < 0xF0)
    return (byte(0) & 0x0FU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU);
  return 0;
}

// C1 controls, the separators of lines and paragraphs, and what turns the direction of writing.
bool is_unseen(uint32_t letter) {
  return (letter >= 0x80 && letter < 0xA0) || letter == 0x061C || (letter >= 0x200E && letter <= 0x200F) ||
         (letter >= 0x2028 && letter <= 0x202E) || (letter >= 0x2066 && letter <= 0x2069);
}

// `text` is valid UTF-8.
std::string without_controls(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (const uint32_t letter = wide_letter(text.substr(at)); is_unseen(letter)) {
      result += fmt::format("\\u{:04x}", letter);
      at += letter < 0x800 ? 1 : 2;
    } else if (byte == '\t' || byte == '\r') {
      result += byte == '\t' ? "\\t" : "\\r";
    } else if ((byte < 0x20 && byte != '\n') || byte == 0x7F) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += text[at];
    }
  }
  return result;
}

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

std::string visible_text(std::string_view bytes) {
  std::string result;
  while (!bytes.empty()) {
    const std::optional<int64_t> bad = invalid_utf8(bytes);
    const size_t good = bad ? static_cast<size_t>(*bad) : bytes.size();
    result += without_controls(bytes.substr(0, good));
    if (good < bytes.size()) result += fmt::format("<0x{:02X}>", static_cast<unsigned char>(bytes[good]));
    bytes.remove_prefix(bad ? good + 1 : good);
  }
  return result;
}

std::string visible_tokens(const std::vector<int32_t>& ids, const Tokenizer& tokenizer) {
  std::string result, bytes;  // bytes: of the pieces since the last special token
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
  // An id is one line, whatever it holds.
  if (!id.empty()) line += "  id " + cut_to_width(visible_text(id), 0);
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
