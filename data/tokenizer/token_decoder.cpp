#include "data/tokenizer/token_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "data/text/utf8.h"

namespace ripstop {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

/// The byte of a token such as <0x0A>.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  // Hugging Face's tokenizers accepts a plus sign in front of the digits.
  const std::string_view digits = token.substr(token[3] == '+' ? 4 : 3, token[3] == '+' ? 1 : 2);
  if (!std::ranges::all_of(digits, [](unsigned char c) { return std::isxdigit(c) != 0; }))
    return std::nullopt;
  return static_cast<char>(std::stoi(std::string(digits), nullptr, 16));
}

/// Runs of byte tokens become letters, or a U+FFFD for every byte if the run is not UTF-8.
std::vector<std::string> join_bytes(std::vector<std::string> tokens) {
  std::vector<std::string> joined;
  std::string run;
  const auto end_run = [&] {
    if (!run.empty() && !invalid_utf8(run))
      joined.push_back(run);
    else
      joined.insert(joined.end(), run.size(), std::string(kReplacement));
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      run += *byte;
      continue;
    }
    end_run();
    joined.push_back(std::move(token));
  }
  end_run();
  return joined;
}

std::string strip_letters(const DecodeStep& step, std::string_view token) {
  for (int64_t i = 0; i < step.start && token.starts_with(step.content); ++i)
    token.remove_prefix(step.content.size());
  for (int64_t i = 0; i < step.stop && token.ends_with(step.content); ++i)
    token.remove_suffix(step.content.size());
  return std::string(token);
}

std::string replaced(const DecodeStep& step, std::string_view token, RegexScratch& scratch) {
  std::vector<PatternPart> parts;
  step.pattern.find_parts(token, scratch, parts);
  std::string text;
  for (const PatternPart& part : parts)
    text += part.matches ? std::string_view(step.content) : token.substr(part.begin, part.end - part.begin);
  return text;
}

}  // namespace

std::string with_replacement_letters(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    size_t size = sequence_bytes(bytes);
    text += size > 0 ? bytes.substr(0, size) : kReplacement;
    if (size == 0) {
      // Find the longest start of a letter that more bytes could complete.
      for (size = std::min<size_t>(3, bytes.size()); size > 1; --size)
        if (sequence_bytes(std::string(bytes.substr(0, size)) + "\x80\x80") > size) break;
    }
    bytes.remove_prefix(size);
  }
  return text;
}

TokenDecoder::TokenDecoder(std::vector<DecodeStep> steps) : steps_(std::move(steps)) {
  byte_of_letter_.fill(-1);
  for (int byte = 0; byte < 256; ++byte)
    byte_of_letter_[letter_of_byte(static_cast<unsigned char>(byte))] = static_cast<int16_t>(byte);
}

/// The bytes for which the letters of `token` stand; `token` itself if a letter stands for no byte.
std::string TokenDecoder::byte_level(std::string_view token) const {
  std::string bytes;
  for (std::string_view left = token; !left.empty();) {
    const size_t size = sequence_bytes(left);
    const uint32_t letter = code_point(left.substr(0, size));
    if (letter >= byte_of_letter_.size() || byte_of_letter_[letter] < 0) return std::string(token);
    bytes += static_cast<char>(byte_of_letter_[letter]);
    left.remove_prefix(size);
  }
  return bytes;
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  RegexScratch scratch;
  for (const DecodeStep& step : steps_) {
    switch (step.kind) {
      case DecodeStep::Kind::kByteLevel: {
        std::string bytes;
        for (const std::string& token : tokens) bytes += byte_level(token);
        tokens = {with_replacement_letters(bytes)};
        break;
      }
      case DecodeStep::Kind::kReplace:
        for (std::string& token : tokens) token = replaced(step, token, scratch);
        break;
      case DecodeStep::Kind::kByteFallback:
        tokens = join_bytes(std::move(tokens));
        break;
      case DecodeStep::Kind::kFuse: {
        std::string whole;
        for (const std::string& token : tokens) whole += token;
        tokens = {std::move(whole)};
        break;
      }
      case DecodeStep::Kind::kStrip:
        for (std::string& token : tokens) token = strip_letters(step, token);
        break;
      case DecodeStep::Kind::kMetaspace:
        for (size_t i = 0; i < tokens.size(); ++i)
          tokens[i] = replace_all(tokens[i], step.content, i == 0 && step.drops_first ? "" : " ");
        break;
    }
  }
  std::string text;
  for (const std::string& token : tokens) {
    if (steps_.empty() && &token != tokens.data()) text += ' ';
    text += token;
  }
  return text;
}

std::string TokenDecoder::bytes(std::string token) const {
  RegexScratch scratch;
  for (const DecodeStep& step : steps_) {
    if (step.kind == DecodeStep::Kind::kByteLevel) return byte_level(token);
    if (step.kind == DecodeStep::Kind::kByteFallback)
      if (const auto byte = fallback_byte(token)) return {*byte};
    if (step.kind == DecodeStep::Kind::kReplace) token = replaced(step, token, scratch);
    if (step.kind == DecodeStep::Kind::kMetaspace) token = replace_all(token, step.content, " ");
  }
  return token;
}

std::string DecodeStep::identity() const {
  return fmt::format("decode {} {} {} {} {} {}:{} {}:{}\n", static_cast<int>(kind), start, stop, drops_first,
                     pattern.regex.has_value(), pattern.source.size(), pattern.source, content.size(),
                     content);
}

std::string TokenDecoder::identity() const {
  std::string text;
  for (const DecodeStep& step : steps_) text += step.identity();
  return text;
}

}  // namespace ripstop
