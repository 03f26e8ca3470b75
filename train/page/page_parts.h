// The parts of a report, from top to bottom. Each function returns HTML; "" or a sentence if the runs have
// nothing to show.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/page/page.h"

namespace ripstop {

/// Rules that give each run its color: the classes "r0" and so on set --run, "c0" colors lines, "t0" texts.
std::string colors();

/// The name of run `number`, cut to `most` characters; with the run's color if there are several runs.
std::string name_of(std::span<const RunRecord> runs, size_t number, size_t most);

/// The beginning of a section with its heading, which the menu repeats: "Where the time went" for "time".
std::string section_begin(std::string_view id);

/// A table of facts: a row for each fact, a column for each run.
class RunTable {
 public:
  explicit RunTable(std::span<const RunRecord> runs) : runs_(runs) {}

  /// Adds a row with the HTML cell(run) of each run. Leaves out a row without any text.
  void row(const std::string& label, auto&& cell) {
    std::vector<std::string> cells;
    for (const RunRecord& run : runs_) cells.push_back(cell(run));
    for (const std::string& text : cells)
      if (!text.empty()) {
        rows_.push_back({label, std::move(cells)});
        return;
      }
  }
  bool is_empty() const { return rows_.empty(); }
  std::string html() const;
  std::string tiles() const;  ///< the facts of the first run as tiles

 private:
  struct Row {
    std::string label;
    std::vector<std::string> cells;
  };
  std::span<const RunRecord> runs_;
  std::vector<Row> rows_;
};

/// Sentences on what each run trains and on its events.
std::string story(std::span<const RunRecord> runs);
/// The most important facts: tiles of one run, else a table.
std::string overview(std::span<const RunRecord> runs);
/// Evaluations, with means and 95 % intervals.
std::string scores(std::span<const RunRecord> runs);
/// Documents and references with the summaries of each run.
std::string texts(std::span<const RunRecord> runs, const PageOptions& options);
/// Keys whose values differ between the configs, but for run.directory.
std::string config_differences(std::span<const RunRecord> runs);
/// Where the time went, by purpose and by host.
std::string time_use(std::span<const RunRecord> runs);
/// The plan beside what was measured.
std::string memory_use(std::span<const RunRecord> runs);
/// Restarts and warnings.
std::string history(std::span<const RunRecord> runs, const PageOptions& options);
/// Facts needed to make the runs again.
std::string origin(std::span<const RunRecord> runs, const PageOptions& options);

}  // namespace ripstop
