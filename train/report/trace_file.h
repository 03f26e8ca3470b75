// Traces of the steps of run.profile_steps, as JSON that Perfetto and chrome://tracing open.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/io.h"
#include "model/device/range_recorder.h"

namespace ripstop {

/// The beginning of every trace.
inline constexpr std::string_view kTraceBegin = R"({"displayTimeUnit":"ms","otherData":)";
inline constexpr const char* kTraceFolder = "trace";  ///< below the run's directory

/// The times at which a rank entered and left barriers of all ranks, in nanoseconds of its node's clock.
struct BarrierTimes {
  int64_t node = 0;
  std::array<int64_t, 8> entered{}, left{};
};

/// A node's clock beside the clock of rank 0's node. No rank leaves a barrier before all have entered it, so
/// the node's clock is ahead by at least (last entry on the node) - (first exit on rank 0's node) and at most
/// (first exit on the node) - (last entry on rank 0's node). The offset is the middle of the range that all
/// barriers allow, the error half the range. From before the steps to after, the offset changes linearly.
class NodeClock {
 public:
  /// Times of all ranks, before and after the steps.
  NodeClock(const std::vector<BarrierTimes>& before, const std::vector<BarrierTimes>& after, int64_t node);
  int64_t of_rank_0(int64_t ns) const;  ///< time `ns` of the node's clock, as rank 0's node would show it
  double error_us() const { return error_us_; }

 private:
  std::array<int64_t, 2> at_{}, offset_{};
  double error_us_ = 0;
};

/// The facts of a rank's trace.
struct TraceFacts {
  int64_t format_version = 1, rank = 0, ranks = 1;
  std::string process = {};  ///< "rank 3 (node07, fsdp 1 tensor 1)"
  std::string device = {};
  int64_t first_step = 0, last_step = 0;
  int64_t started_ns = 0;  ///< ts 0, by rank 0's clock: equal in all files of one trace
  double clock_error_us = 0;
  int64_t dropped_ranges = 0;

  static void fields(auto& self, auto& field) {
    field("format_version", self.format_version, 1, 1);
    field("rank", self.rank);
    field("ranks", self.ranks);
    field("process", self.process);
    field("device", self.device);
    field("first_step", self.first_step);
    field("last_step", self.last_step);
    field("started_ns", self.started_ns);
    field("clock_error_us", self.clock_error_us);
    field("dropped_ranges", self.dropped_ranges);
  }
};

std::string trace_file_name(int64_t rank);  ///< "rank_00003.json"

/// Makes `folder` if it is absent, and removes the traces in it. Throws Error(kStorage).
void remove_traces(Io& io, const std::filesystem::path& folder);

/// Writes the trace of one rank into `folder`, whole or not at all. Throws Error(kStorage).
void write_trace(Io& io, const std::filesystem::path& folder, const TraceFacts& facts,
                 const RangeRecorder& recorder, const NodeClock& clock);

struct MergedTraces {
  TraceFacts facts;                   ///< facts of the first rank, with the largest clock error of all
  int64_t ranks = 0;                  ///< ranks in the merged file
  std::vector<std::string> problems;  ///< files left out: missing, damaged, or of an older trace
};

/// Merges the traces in `folder` into `output`, which may exist, with pid = rank. Throws Error(kInputData) if
/// no trace is whole, and Error(kStorage).
MergedTraces merge_traces(Io& io, const std::filesystem::path& folder, const std::filesystem::path& output);

}  // namespace ripstop
