// What every verb needs of the command line: parsing, and how a failure is told.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "model/core/error.h"

namespace ripstop {

/// The words after the verb.
using Arguments = std::vector<std::string>;

/// What is wrong with the words after the program's name: the same on all ranks, so that one tells it.
class CommandLineError : public Error {
 public:
  explicit CommandLineError(const std::string& what, const std::string& hint)
      : Error(ExitCode::kUsage, what, hint) {}
};

/// Fills the variables bound to `app` from `arguments`. Throws CommandLineError for what does not fit, with
/// the nearest option where there is one; throws CLI::CallForHelp on --help, which main answers.
void parse(CLI::App& app, const Arguments& arguments);

/// The footer that shows how a verb is used; every verb has one.
void set_example(CLI::App& app, const std::string& example);

/// The one line of a failed run, without the line end: `FATAL code=64 rank=0 step=- what="..." hint="..."`.
/// Quotes, backslashes and control characters in the texts are escaped as in JSON.
std::string fatal_line(const Error& error, int64_t rank);

}  // namespace ripstop
