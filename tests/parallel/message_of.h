#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "model/core/error.h"

namespace ripstop {

/// The message and the hint of the error that `call` throws, which must have the exit code `code`.
inline std::string message_of(const std::function<void()>& call, ExitCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return std::string(error.what()) + " | " + error.hint();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace ripstop
