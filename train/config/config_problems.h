// What is wrong with a config, told all at once.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/core/error.h"

namespace ripstop {

/// Throws Error(kUsage) with one problem: "`where`: `what`".
[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& hint = {});

/// Collects the problems of a config, so that people can mend all of them after one look.
class ConfigProblems {
 public:
  /// Adds a problem. `text` begins with its place: "x.toml:12: unknown key 'run.sed'". `line` orders the
  /// message: that of the file, or 0 for the command line, which comes last. `hint` may return ""; it is
  /// called only for problems that are shown, because looking for a similar name takes time. `code` is that
  /// of the error if there is no other problem.
  void add(int64_t line, std::string text, std::function<std::string()> hint,
           ExitCode code = ExitCode::kUsage);

  bool any() const { return !problems_.empty(); }
  /// Whether all problems fit into one message, and a hint of one of them has `text`.
  bool any_hint_has(std::string_view text) const;

  /// Does nothing if there is no problem. Throws Error with one problem and its hint, or Error(kUsage) with
  /// the first eight, each followed by its hint, and the number of the others.
  void refuse() const;

 private:
  struct Problem {
    int64_t line;
    std::string text;
    std::function<std::string()> hint;
    ExitCode code;
  };
  std::vector<Problem> problems_;
};

}  // namespace ripstop
