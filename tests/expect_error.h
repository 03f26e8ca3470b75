// The errors that tests expect.
#pragma once
#include <gtest/gtest.h>

#include <concepts>
#include <source_location>
#include <string>

#include "model/core/error.h"
#include "tests/expect_has.h"

namespace ripstop {

/// The error that `call` throws; one of ExitCode::kOk without a message if it throws none.
template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {ExitCode::kOk, ""};
}

/// The error that `call` throws, which must have the code `code` and a message of one line; else as above.
template <class Call>
Error error_of(Call&& call, ExitCode code) {
  const Error error = error_of(call);
  EXPECT_EQ(error.code(), error.code() == ExitCode::kOk ? ExitCode::kOk : code) << error.what();
  EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  return error;
}

/// The message of error_of(call, code); "" if nothing is thrown.
template <class Call>
std::string what_of(Call&& call, ExitCode code) {
  return error_of(call, code).what();
}

/// "MESSAGE | HINT" of error_of(call, code); "" if nothing is thrown.
template <class Call>
std::string what_and_hint_of(Call&& call, ExitCode code) {
  const Error error = error_of(call, code);
  return error.code() == ExitCode::kOk ? "" : std::string(error.what()) + " | " + error.hint();
}

/// Expects that `error` has the code `code`, `what` in its message and `hint` in its hint.
inline void expect_error(const Error& error, ExitCode code, const std::string& what = "",
                         const std::string& hint = "",
                         const std::source_location& place = std::source_location::current()) {
  const testing::ScopedTrace trace(place.file_name(), static_cast<int>(place.line()), "an error is expected");
  EXPECT_EQ(error.code(), code) << error.what();
  EXPECT_HAS(error.what(), what);
  EXPECT_HAS(error.hint(), hint);
}

/// The same of the error that `call` throws, whose message must be one line.
template <std::invocable Call>
void expect_error(Call&& call, ExitCode code, const std::string& what = "", const std::string& hint = "",
                  const std::source_location& place = std::source_location::current()) {
  expect_error(error_of(call, code), code, what, hint, place);
}

}  // namespace ripstop
