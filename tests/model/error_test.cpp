#include "model/core/error.h"
#include "tests/expect_error.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace ripstop {
namespace {

TEST(Check, ThrowsABugWithItsPlace) {
  expect_error([&] { RIPSTOP_CHECK(1 + 1 == 3, "a text {}", 7); }, ExitCode::kBug,
               "error_test.cpp:14: 1 + 1 == 3 is false: a text 7");
}

TEST(Check, LeavesACoreWithItsStackIfAskedFor) {
  const auto abort = [] {
    setenv("RIPSTOP_ABORT", "1", 1);
    RIPSTOP_CHECK(1 + 1 == 3, "a text");
  };
  EXPECT_EXIT(abort(), testing::KilledBySignal(SIGABRT), "1 \\+ 1 == 3 is false: a text");
}

TEST(CurrentError, EachKindHasItsExitCode) {
  const auto code_of = [](const auto& thrown) {
    try {
      throw thrown;
    } catch (...) {
      return current_error().code();
    }
  };
  EXPECT_EQ(code_of(std::bad_alloc()), ExitCode::kResources);
  EXPECT_EQ(code_of(std::system_error(ENOSPC, std::generic_category())), ExitCode::kStorage);
  EXPECT_EQ(code_of(std::system_error(EAGAIN, std::generic_category())), ExitCode::kResources);
}

}  // namespace
}  // namespace ripstop
