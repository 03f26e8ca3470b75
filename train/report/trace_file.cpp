#include "train/report/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <tuple>

#include "data/files/directory.h"
#include "data/files/file.h"
#include "data/files/whole_file.h"
#include "data/text/json_struct.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEventsBegin = ",\"traceEvents\":[\n", kEventsEnd = "\n]}\n";
constexpr int64_t kMostTraceBytes = int64_t{1} << 30;

bool is_trace_name(const std::string& name) {
  return name.starts_with("rank_") && name.ends_with(".json");
}

std::string begin_text(const JsonReader::Json& about) {
  return fmt::format("{}{}{}", kTraceBegin, text_of_json(about), kEventsBegin);
}

// Names the process and its tracks.
std::string names_text(const TraceFacts& facts, const std::vector<std::string>& tracks) {
  const auto event = [&](const char* what, size_t tid, const char* key, const std::string& value) {
    return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"{}":{}}}}})", what, facts.rank,
                       tid, key, value);
  };
  std::string text = event("process_name", 0, "name", text_of_json(facts.process)) + ",\n" +
                     event("process_sort_index", 0, "sort_index", std::to_string(facts.rank));
  for (size_t tid = 0; tid < tracks.size(); ++tid)
    text += ",\n" + event("thread_name", tid, "name", text_of_json(tracks[tid])) + ",\n" +
            event("thread_sort_index", tid, "sort_index",
                  std::to_string(tid == 0 ? -1 : std::ranges::count_if(tracks, [&](const std::string& other) {
                    return other < tracks[tid];
                  })));
  return text;
}

// The JSON fields "cat" and, for a collective with a name like "fsdp all_gather", "args".
std::string kind_text(const RangeRecorder::Range& range) {
  if (range.track == 0)
    return fmt::format(R"("cat":"{}")", range.name.starts_with("wait ") ? "wait" : "range");
  if (range.bytes < 0)
    return fmt::format(R"("cat":"{}")", range.name.starts_with("save") ? "save" : "collective");
  const size_t space = range.name.find(' ');
  return fmt::format(R"("cat":"collective","args":{{"axis":"{}","operation":"{}","bytes":{}}})",
                     range.name.substr(0, space), range.name.substr(space + 1), range.bytes);
}

// The facts of the trace `text`. Throws Error(kInputData) if the trace is not whole.
TraceFacts facts_of(const fs::path& path, std::string_view text) {
  const JsonReader reader(path.string(), ExitCode::kInputData);
  if (!text.starts_with(kTraceBegin) || text.find(kEventsBegin) == text.npos || !text.ends_with(kEventsEnd))
    reader.refuse("is no whole trace of a rank");
  TraceFacts facts;
  const JsonReader::Json json = reader.parse(text, /*kept_levels=*/2);
  FieldReader fields(reader, reader.member(json, "otherData"), FieldReader::Mode::kSkipsUnknown);
  TraceFacts::fields(facts, fields);
  if (path.filename() != trace_file_name(facts.rank)) reader.refuse("is the trace of rank {}", facts.rank);
  return facts;
}

// The whole files of the newest trace in `folder`, by rank.
std::map<int64_t, TraceFacts> whole_traces(Io& io, const fs::path& folder,
                                           std::vector<std::string>& problems) {
  std::map<int64_t, TraceFacts> whole;
  TraceFacts newest;
  for (const Io::Entry& entry : list_directory(io, folder)) {
    if (!is_trace_name(entry.name)) continue;
    try {
      const fs::path path = folder / entry.name;
      const TraceFacts facts = facts_of(path, read_whole_file(io, path, kMostTraceBytes));
      if (facts.started_ns >= newest.started_ns) newest = facts;
      whole[facts.rank] = facts;
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  }
  for (int64_t rank = 0; rank < newest.ranks; ++rank) {
    const auto found = whole.find(rank);
    if (found != whole.end() && found->second.started_ns != newest.started_ns)
      problems.push_back(trace_file_name(rank) + " is of another trace");
    else if (found == whole.end() && !path_exists(io, folder / trace_file_name(rank)))
      problems.push_back(trace_file_name(rank) + " is missing");
  }
  std::erase_if(whole, [&](const auto& each) { return each.second.started_ns != newest.started_ns; });
  return whole;
}

}  // namespace

NodeClock::NodeClock(const std::vector<BarrierTimes>& before, const std::vector<BarrierTimes>& after,
                     int64_t node) {
  const int64_t first = before.front().node;
  for (size_t half = 0; half < 2 && node != first; ++half) {
    const std::vector<BarrierTimes>& ranks = half == 0 ? before : after;
    int64_t least = INT64_MIN, most = INT64_MAX;
    for (size_t barrier = 0; barrier < ranks.front().entered.size(); ++barrier) {
      std::map<int64_t, int64_t> last_entry, first_exit;  // by node
      for (const BarrierTimes& rank : ranks) {
        last_entry[rank.node] = std::max(last_entry[rank.node], rank.entered[barrier]);
        const auto [exit, is_new] = first_exit.emplace(rank.node, rank.left[barrier]);
        exit->second = std::min(exit->second, rank.left[barrier]);
      }
      least = std::max(least, last_entry[node] - first_exit[first]);
      most = std::min(most, first_exit[node] - last_entry[first]);
      at_[half] = last_entry[node];
    }
    offset_[half] = least + (most - least) / 2;
    error_us_ = std::max(error_us_, 0.5e-3 * std::abs(static_cast<double>(most - least)));
  }
}

int64_t NodeClock::of_rank_0(int64_t ns) const {
  const double between = std::max(1.0, static_cast<double>(at_[1] - at_[0]));
  const double growth = static_cast<double>(offset_[1] - offset_[0]) / between;
  return ns - offset_[0] - std::llround(growth * static_cast<double>(ns - at_[0]));
}

std::string trace_file_name(int64_t rank) {
  return fmt::format("rank_{:05}.json", rank);
}

void remove_traces(Io& io, const fs::path& folder) {
  make_directory(io, folder);
  for (const Io::Entry& entry : list_directory(io, folder))
    if (is_trace_name(entry.name) && io.unlink(folder / entry.name) != 0)
      fail_storage(folder / entry.name, "remove the file", errno);
}

void write_trace(Io& io, const fs::path& folder, const TraceFacts& facts, const RangeRecorder& recorder,
                 const NodeClock& clock) {
  std::vector<const RangeRecorder::Range*> sorted;
  for (const RangeRecorder::Range& range : recorder.ranges()) sorted.push_back(&range);
  std::ranges::sort(sorted, {}, [](const auto* range) {
    return std::tuple(range->track, range->begin_ns, -range->end_ns);
  });
  // Whole microseconds, because a reader that rounds might unnest ranges.
  const auto microseconds = [&](int64_t ns) {
    return std::max<int64_t>(0, clock.of_rank_0(ns) - facts.started_ns) / 1000;
  };
  replace_file(io, folder / trace_file_name(facts.rank), [&](OutputFile& file) {
    std::string text = begin_text(FieldWriter::to_json(facts)) + names_text(facts, recorder.tracks());
    for (const auto* range : sorted) {
      const int64_t ts = microseconds(range->begin_ns);
      text += fmt::format(",\n{{\"name\":{},\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":{},\"tid\":{},{}}}",
                          text_of_json(range->name), ts, microseconds(range->end_ns) - ts, facts.rank,
                          range->track, kind_text(*range));
      file.append(text.data(), std::ssize(text));
      text.clear();
    }
    text += kEventsEnd;
    file.append(text.data(), std::ssize(text));
  });
}

MergedTraces merge_traces(Io& io, const fs::path& folder, const fs::path& output) {
  MergedTraces merged;
  const std::map<int64_t, TraceFacts> whole = whole_traces(io, folder, merged.problems);
  if (whole.empty())
    throw Error(ExitCode::kInputData,
                fmt::format("{} has no trace{}", folder.string(),
                            merged.problems.empty() ? "" : ": " + merged.problems.front()),
                "a run with run.profile_steps = \"10-12\" writes one");
  merged.facts = whole.begin()->second;
  merged.ranks = std::ssize(whole);
  for (const auto& [rank, facts] : whole)
    merged.facts.clock_error_us = std::max(merged.facts.clock_error_us, facts.clock_error_us);
  JsonReader::Json about = FieldWriter::to_json(merged.facts);
  about["left_out"] = merged.problems;
  replace_file(io, output, [&](OutputFile& file) {
    std::string text = begin_text(about);
    for (const auto& [rank, facts] : whole) {
      file.append(text.data(), std::ssize(text));
      text = read_whole_file(io, folder / trace_file_name(rank), kMostTraceBytes);
      text.erase(0, text.find(kEventsBegin) + kEventsBegin.size());
      text.resize(text.size() - kEventsEnd.size());
      text += rank == whole.rbegin()->first ? kEventsEnd : ",\n";
    }
    file.append(text.data(), std::ssize(text));
  });
  return merged;
}

}  // namespace ripstop
