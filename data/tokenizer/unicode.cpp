#include "data/tokenizer/unicode.h"

#include <fmt/format.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <array>
#include <memory>

#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

icu::StringPiece piece(std::string_view text) {
  return {text.data(), static_cast<int32_t>(text.size())};
}

/// ICU's normalizers, confined to the code points of Unicode 9.
struct Forms {
  icu::UnicodeSet known;
  std::array<std::unique_ptr<icu::FilteredNormalizer2>, 4> forms;

  Forms() {
    UErrorCode error = U_ZERO_ERROR;
    known.applyPattern(u"[:age=9.0:]", error).freeze();
    const std::array<const icu::Normalizer2*, 4> whole{
        icu::Normalizer2::getNFCInstance(error), icu::Normalizer2::getNFDInstance(error),
        icu::Normalizer2::getNFKCInstance(error), icu::Normalizer2::getNFKDInstance(error)};
    if (U_FAILURE(error)) fail(ExitCode::kResources, "ICU has no data: {}", u_errorName(error));
    for (size_t i = 0; i < whole.size(); ++i)
      forms[i] = std::make_unique<icu::FilteredNormalizer2>(*whole[i], known);
  }
};

const icu::Normalizer2& normalizer(NormalForm form) {
  static const Forms forms;  // constant, and made by the first caller
  return *forms.forms[static_cast<size_t>(form)];
}

}  // namespace

bool is_normal(NormalForm form, std::string_view text) {
  bool ascii = true;
  for (const char byte : text) ascii &= static_cast<unsigned char>(byte) < 0x80;
  UErrorCode error = U_ZERO_ERROR;
  return ascii || normalizer(form).isNormalizedUTF8(piece(text), error);
}

void normalize(NormalForm form, std::string_view text,
               FunctionRef<void(std::string_view bytes, size_t begin, size_t end)> take) {
  const icu::Normalizer2& normal = normalizer(form);
  std::string bytes;
  for (size_t begin = 0; begin < text.size();) {
    // A part ends before a letter whose normal form does not depend on the letters before it.
    size_t end = begin;
    do end += sequence_bytes(text.substr(end));
    while (end < text.size() && !normal.hasBoundaryBefore(static_cast<UChar32>(
                                    code_point(text.substr(end, sequence_bytes(text.substr(end)))))));
    bytes.clear();
    icu::StringByteSink<std::string> sink(&bytes);
    UErrorCode error = U_ZERO_ERROR;
    normal.normalizeUTF8(0, piece(text.substr(begin, end - begin)), sink, nullptr, error);
    if (U_FAILURE(error)) fail(ExitCode::kInputData, "a text cannot be normalized: {}", u_errorName(error));
    take(bytes, begin, end);
    begin = end;
  }
}

std::string lowercase(uint32_t letter) {
  if (letter == 0x130) return "i\xcc\x87";  // the only letter whose lower case has two code points
  std::string bytes;
  icu::UnicodeString(u_tolower(static_cast<UChar32>(letter))).toUTF8String(bytes);
  return bytes;
}

bool is_white_space(uint32_t letter) {
  return u_isUWhiteSpace(static_cast<UChar32>(letter)) != 0;
}

bool is_word_letter(uint32_t letter) {
  const auto c = static_cast<UChar32>(letter);
  return u_isUAlphabetic(c) != 0 || (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) != 0;
}

std::string punctuation_class() {
  // The punctuation of Unicode 8, with two code points that are not punctuation today, and ASCII's signs.
  UErrorCode error = U_ZERO_ERROR;
  const icu::UnicodeSet set(
      u"[[[:P:]&[:age=8.0:]][\\u166d\\U000111c9][\\u0021-\\u002f\\u003a-\\u0040\\u005b-\\u0060\\u007b-"
      u"\\u007e]]",
      error);
  if (U_FAILURE(error)) fail(ExitCode::kResources, "ICU has no data: {}", u_errorName(error));
  std::string ranges;
  for (int32_t i = 0; i < set.getRangeCount(); ++i)
    ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", set.getRangeStart(i), set.getRangeEnd(i));
  return "[" + ranges + "]";
}

}  // namespace ripstop
