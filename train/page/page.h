// The report of runs: one HTML file that loads nothing and has no script.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "train/page/run_record.h"

namespace ripstop {

struct PageOptions {
  double time = 0;           ///< when the page is made, in seconds since 1970
  bool utc = false;          ///< shows times in UTC, not in this machine's zone
  bool with_texts = true;    ///< false: says that documents and summaries are left out
  std::string version = {};  ///< version of ripstop
};

/// Maximum number of runs of a page.
inline constexpr size_t kMostRuns = 16;

/// The beginning of every page, by which `report` recognizes an older page that it may replace.
inline constexpr std::string_view kPageBegin = "<!doctype html>\n<!-- report of ripstop -->\n";

/// The page of 1 to kMostRuns runs.
std::string page(std::span<const RunRecord> runs, const PageOptions& options);

/// The maximum number of columns of a run on a page of `runs` runs, so that pages stay small.
size_t columns_of_each(size_t runs);

/// "2026-11-25T10:34+01:00"; "?" unless |seconds| < 1e11.
std::string time_text(double seconds, bool utc);

}  // namespace ripstop
