#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

// Declared by PCRE2.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace ripstop {

/// Memory and a limit of processor time for one thread's searches. The first search allocates the memory.
class RegexScratch {
 public:
  /// A limit far above what texts usually take, and far below the hours of a quadratic expression.
  static constexpr double kMostSeconds = 60;
  RegexScratch() { start(); }  ///< calls start()
  /// Lets find() fail once the thread has used `seconds` more of processor time.
  void start(double seconds = kMostSeconds);

 private:
  friend class Regex;
  void allocate();
  bool is_late(size_t starts);
  double end_seconds_ = 0;
  size_t unread_starts_ = 0;
  template <class T>
  using Owned = std::unique_ptr<T, void (*)(T*)>;
  Owned<pcre2_real_match_data_8> data_{nullptr, nullptr};
  Owned<pcre2_real_jit_stack_8> stack_{nullptr, nullptr};
  Owned<pcre2_real_match_context_8> context_{nullptr, nullptr};
};

/// A compiled regular expression. Several threads may search at once, each with its own scratch.
class Regex {
 public:
  /// `pattern`: in the syntax of Oniguruma. Throws Error(kInputData) if it is damaged, longer than 64 KiB, or
  /// has a construct that is not known to match as in Oniguruma.
  explicit Regex(std::string_view pattern);
  /// `pcre2`: in the syntax of PCRE2. `shown`: for messages.
  Regex(const std::string& pcre2, std::string_view shown);

  /// Whether the expression might match the empty text.
  bool matches_empty() const;
  struct Match {
    size_t begin = 0, end = 0;
  };
  /// The first match in the valid UTF-8 `text` that begins at byte `at` or later. Throws Error(kInputData) if
  /// the search takes too many steps or too much memory, or if the time of `scratch` is over.
  std::optional<Match> find(std::string_view text, size_t at, RegexScratch& scratch) const;

 private:
  std::string shown_;
  std::unique_ptr<pcre2_real_code_8, void (*)(pcre2_real_code_8*)> code_;
};

}  // namespace ripstop
