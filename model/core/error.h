#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace ripstop {

/// Exit codes. Up to 75 they mean about the same as in sysexits.h.
enum class ExitCode : int {
  kOk = 0,
  kUsage = 64,          ///< wrong command line or config file
  kInputData = 65,      ///< wrong input, such as a corpus or a model
  kBug = 70,            ///< a fault of ripstop itself
  kStorage = 74,        ///< the file system or a checkpoint failed, or the run was taken over
  kRequeue = 75,        ///< no error: a signal or time limit ended the process; run the same command again
  kCommunication = 76,  ///< a rank or its storage does not answer, or restarts made no new checkpoint
  kNumerics = 77,       ///< the loss or a gradient is not finite, or differs from that of one rank (`check`)
  kResources = 78,      ///< too little memory, or a mesh or machine that does not fit
};

/// A failure to report. `what()` is one line: the problem, with the values found and expected. `hint()` is a
/// remedy, or empty. train/main.cpp catches Errors.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what, std::string hint = {})
      : std::runtime_error(what), code_(code), hint_(std::move(hint)) {}
  ExitCode code() const { return code_; }
  const std::string& hint() const { return hint_; }
  std::optional<int64_t> step() const { return step_; }  ///< the training step that failed, if known
  void set_step(int64_t step) { step_ = step; }

 private:
  ExitCode code_;
  std::string hint_;
  std::optional<int64_t> step_;
};

/// Throws an Error without a hint; fmt makes its text.
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Converts the exception under way to an Error. Call it in `catch (...)`.
inline Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ExitCode::kResources, "out of host memory"};
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again)  // no thread
      return {ExitCode::kResources, "the system starts no more threads", "see ulimit -u"};
    return {ExitCode::kStorage, error.what()};
  } catch (const std::exception& error) {
    return {ExitCode::kBug, error.what(), "please report this"};
  }
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

/// Unless `condition` holds, throws Error(kBug) with file, line, the condition and a text made by fmt. If
/// RIPSTOP_ABORT is set in the environment, ends the process by SIGABRT instead, for a core dump. Active in
/// every build type. For contracts between parts of ripstop; for wrong input call fail().
#define RIPSTOP_CHECK(condition, ...)                                                            \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::ripstop::detail::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
