// Error, the only exception type of ripstop, and the checks that throw it.
#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ripstop {

/// The exit code of a process, for scripts. The numbers follow sysexits.h if it has one for the case.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 64,          ///< command line or config
  kInputData = 65,      ///< corpus, tokenizer, data set
  kBug = 70,            ///< ripstop itself is wrong
  kStorage = 74,        ///< file system, checkpoint
  kRequeue = 75,        ///< checkpointed on a signal; run the same command again
  kCommunication = 76,  ///< a lost rank, a hang
  kNumerics = 77,       ///< loss or gradient not finite, or different from one rank's
  kResources = 78,      ///< memory, mesh, machine
};

/// The only exception that ripstop throws on purpose. `what()` is one line: the problem, with the values
/// found and expected. `hint()` tells the user a remedy, or is empty. train/main.cpp catches it.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what, std::string hint = {})
      : std::runtime_error(what), code_(code), hint_(std::move(hint)) {}
  ExitCode code() const { return code_; }
  const std::string& hint() const { return hint_; }
  /// The training step of the error, if one is known.
  std::optional<int64_t> step() const { return step_; }
  void set_step(int64_t step) { step_ = step; }

 private:
  ExitCode code_;
  std::string hint_;
  std::optional<int64_t> step_;
};

/// Throws Error(code, text formatted by fmt).
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] inline void check_failed(const char* file, int line, const char* condition,
                                      const std::string& text) {
  const std::string what = fmt::format("{}:{}: {} is false: {}", file, line, condition, text);
  if (std::getenv("RIPSTOP_ABORT") != nullptr) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::abort();
  }
  throw Error(ExitCode::kBug, what);
}
}  // namespace detail

}  // namespace ripstop

/// Throws Error(kBug) unless `condition` holds. The message has file, line, the condition and a text
/// formatted by fmt. With RIPSTOP_ABORT in the environment ends the process by SIGABRT instead, so that a
/// core dump has the stack. For contracts between parts of ripstop, in every build type; `fail` refuses input
/// from outside.
#define RIPSTOP_CHECK(condition, ...)                                                            \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::ripstop::detail::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
