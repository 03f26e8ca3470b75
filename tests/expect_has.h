// EXPECT_HAS: the expectation of tests that read messages.
#pragma once
#include <gtest/gtest.h>

#include <string>

/// Expects that `text` contains `part`; a failure shows the whole text.
#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)
