#pragma once
#include <span>
#include <string>
#include <vector>

#include "train/page/run_record.h"

namespace ripstop {

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

}  // namespace ripstop
