#include "data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <ctime>
#include <new>

#include "data/text/utf8.h"
#include "data/tokenizer/regex_syntax.h"
#include "model/core/error.h"
#include "model/core/one_line.h"

namespace ripstop {
namespace {

constexpr size_t kMostPatternBytes = size_t{64} << 10;
constexpr uint32_t kMostSteps = 10'000'000, kMostHeapKib = 256 << 10;
// The first call of PCRE2 seeks matches that start in this many bytes, the next in twice as many, and so on;
// between calls the clock may be read. Calls stay few, so expressions that read far ahead stay fast.
constexpr size_t kStarts = 256;
constexpr size_t kStackBytes = size_t{64} << 10, kMostStackBytes = size_t{16} << 20;

std::string checked_syntax(std::string_view pattern) {
  if (pattern.size() > kMostPatternBytes)
    fail(ExitCode::kInputData, "a regular expression has {} bytes, at most {} are accepted", pattern.size(),
         kMostPatternBytes);
  return pcre2_syntax(pattern);
}

std::string reason(int code) {
  PCRE2_UCHAR text[256];
  return pcre2_get_error_message(code, text, sizeof text) < 0 ? fmt::format("error {}", code)
                                                              : reinterpret_cast<const char*>(text);
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

void RegexScratch::start(double seconds) {
  end_seconds_ = thread_seconds() + seconds;
}

// Reads the clock only now and then, because reading takes as long as a short search.
bool RegexScratch::is_late(size_t starts) {
  constexpr size_t kBetween = 256 * kStarts;
  unread_starts_ += starts;
  if (unread_starts_ < kBetween) return false;
  unread_starts_ = 0;
  return thread_seconds() > end_seconds_;
}

void RegexScratch::allocate() {
  data_ = {pcre2_match_data_create(1, nullptr), pcre2_match_data_free};
  stack_ = {pcre2_jit_stack_create(kStackBytes, kMostStackBytes, nullptr), pcre2_jit_stack_free};
  context_ = {pcre2_match_context_create(nullptr), pcre2_match_context_free};
  if (!data_ || !stack_ || !context_) throw std::bad_alloc();
  pcre2_set_match_limit(context_.get(), kMostSteps);
  pcre2_set_heap_limit(context_.get(), kMostHeapKib);
  pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
}

Regex::Regex(std::string_view pattern) : Regex(checked_syntax(pattern), pattern) {}

Regex::Regex(const std::string& pcre2, std::string_view shown)
    : shown_(in_one_line(begin_of(shown, 200))), code_(nullptr, pcre2_code_free) {
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t at = 0;
  code_.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pcre2.data()), pcre2.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &error, &at,
      context.get()));
  if (!code_)
    fail(ExitCode::kInputData, "the regular expression '{}' cannot be compiled: {}", shown_, reason(error));
  // If PCRE2 has no JIT for this processor, its interpreter searches.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

bool Regex::matches_empty() const {
  uint32_t empty = 1;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &empty);
  return empty != 0;
}

std::optional<Regex::Match> Regex::find(std::string_view text, size_t at, RegexScratch& scratch) const {
  if (!scratch.context_) scratch.allocate();
  size_t starts = kStarts;
  const auto search = [&](uint32_t options) {
    pcre2_set_offset_limit(scratch.context_.get(), at + starts - 1);
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                       options | PCRE2_NO_UTF_CHECK, scratch.data_.get(), scratch.context_.get());
  };
  int found = 0;
  for (;; at += starts, starts *= 2) {
    while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;  // to the start of a letter
    found = search(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = search(PCRE2_NO_JIT);
    const bool is_late = scratch.is_late(starts);
    if (is_late || (found < 0 && found != PCRE2_ERROR_NOMATCH))
      throw Error(
          ExitCode::kInputData,
          fmt::format(
              "the tokenizer's regular expression '{}' fails on a text of {} bytes: {}", shown_, text.size(),
              is_late ? fmt::format("it takes more than {} s", RegexScratch::kMostSeconds) : reason(found)),
          "no text should need so many steps: is this the tokenizer of the model?");
    if (found != PCRE2_ERROR_NOMATCH) break;
    if (at + starts > text.size()) return std::nullopt;
  }
  const size_t* const place = pcre2_get_ovector_pointer(scratch.data_.get());
  return Match{place[0], place[1]};
}

}  // namespace ripstop
