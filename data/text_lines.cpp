#include "data/text_lines.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/core/error.h"

namespace ripstop {
namespace {

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t") == std::string::npos;
}

bool is_json_object(const std::string& line) {
  return line[line.find_first_not_of(" \t")] == '{' && nlohmann::json::accept(line);
}

std::string summary_of(const std::string& line, const TextLines& lines) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) fail(ExitCode::kInputData, "{}: not a JSON object", lines.place());
  const auto summary = object.find("summary");
  if (summary == object.end()) fail(ExitCode::kInputData, "{}: no field 'summary'", lines.place());
  if (!summary->is_string())
    fail(ExitCode::kInputData, "{}: 'summary' is of type {}, expected a string", lines.place(),
         summary->type_name());
  return *summary;
}

// The length of the sequence that `lead` begins, 0 where it begins none.
int64_t sequence_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// Second bytes have a narrower range behind four lead bytes: overlong forms, surrogates, beyond U+10FFFF.
bool second_byte_fits(unsigned char lead, unsigned char second) {
  const unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return second >= least && second <= most;
}

}  // namespace

TextLines::TextLines(const std::string& path) : name_(path == "-" ? "standard input" : path), input_(&file_) {
  if (path == "-") {
    input_ = &std::cin;
    return;
  }
  if (std::filesystem::is_directory(path))
    fail(ExitCode::kInputData, "{} is a directory, expected a file", path);
  errno = 0;
  file_.open(path, std::ios::binary);
  if (!file_) fail(ExitCode::kInputData, "cannot open {}: {}", path, std::strerror(errno));
}

bool TextLines::next(std::string& line) {
  if (!std::getline(*input_, line)) {
    if (input_->bad()) fail(ExitCode::kStorage, "cannot read {} beyond line {}", name_, number_);
    return false;
  }
  ++number_;
  if (number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  if (line.ends_with('\r')) line.pop_back();
  const int64_t valid = valid_utf8_bytes(line);
  if (valid < std::ssize(line))
    fail(ExitCode::kInputData, "{}: invalid UTF-8 at byte {}", place(), valid + 1);
  return true;
}

std::string TextLines::place() const {
  return fmt::format("{}:{}", name_, number_);
}

int64_t valid_utf8_bytes(std::string_view text) {
  const int64_t size = std::ssize(text);
  const auto byte = [&](int64_t i) { return static_cast<unsigned char>(text[static_cast<size_t>(i)]); };
  int64_t i = 0;
  while (i < size) {
    const int64_t length = sequence_bytes(byte(i));
    if (length == 0 || i + length > size) return i;
    if (length > 1 && !second_byte_fits(byte(i), byte(i + 1))) return i;
    for (int64_t k = 2; k < length; ++k)
      if ((byte(i + k) & 0xC0) != 0x80) return i;
    i += length;
  }
  return i;
}

std::vector<std::string> read_summaries(const std::string& path) {
  TextLines lines(path);
  std::vector<std::string> texts;
  std::optional<bool> json;
  for (std::string line; lines.next(line);) {
    if (!json && !is_blank(line)) {
      json = is_json_object(line);
      if (*json) texts.clear();  // blank lines before the first object
    }
    if (!json.value_or(false)) {
      texts.push_back(line);
    } else if (!is_blank(line)) {
      texts.push_back(summary_of(line, lines));
    }
  }
  if (texts.empty()) fail(ExitCode::kInputData, "{} has no text", path == "-" ? "standard input" : path);
  return texts;
}

}  // namespace ripstop
