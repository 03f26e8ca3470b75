#include "train/checkpoint/takeovers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "data/files/whole_file.h"
#include "data/process/process_identity.h"
#include "data/process/shell_word.h"
#include "data/text/json_reader.h"
#include "data/text/json_struct.h"
#include "model/core/number.h"
#include "train/machine/machine.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using Json = JsonReader::Json;

constexpr const char* kTakeoversFormat = "ripstop takeovers";
constexpr int64_t kTakeoversVersion = 3;
constexpr int64_t kMostTakeoversBytes = int64_t{16} << 20;
constexpr size_t kMostTextBytes = 1024;

/// The number of this process's Slurm job. For a task of a job array, the number of the array, because the
/// tasks of `--array=1-10%1` are starts of one run.
std::string own_job() {
  const std::string array = environment_variable("SLURM_ARRAY_JOB_ID");
  return array.empty() ? environment_variable("SLURM_JOB_ID") : array;
}

template <class Fields>
void takeover_fields(Fields& f, Takeover& takeover) {
  f("number", takeover.number, 1);
  f("step", takeover.step);
  f("owner", takeover.owner, kMostTextBytes);
  f("job", takeover.job, kMostTextBytes);
  f("restart", takeover.restart);
  f("time", takeover.time);
  f("changes", takeover.changes);
}

/// The fields of takeovers.json. Reading accepts every later `version`.
template <class Fields>
void file_fields(Fields& f, std::string& format, int64_t& version, std::vector<Takeover>& all) {
  f("format", format);
  f("version", version);
  f.list("takeovers", all, 0, Takeovers::kMost,
         [](auto& each, Takeover& takeover) { takeover_fields(each, takeover); });
}

std::vector<Takeover> parse(const std::string& bytes, const std::string& name) {
  const JsonReader reader(name, ExitCode::kStorage);
  const Json document = reader.parse(bytes);
  const int64_t written = reader.integer(document, "version", 1, FieldReader::kMost);
  if (written < kTakeoversVersion) reader.refuse("was written by an older ripstop, in version {}", written);
  FieldReader fields(reader, document, FieldReader::Mode::kSkipsUnknown);
  std::string format;
  int64_t version = 0;
  std::vector<Takeover> all;
  file_fields(fields, format, version, all);
  if (format != kTakeoversFormat) reader.refuse("is not a file of takeovers");
  reader.require_seal(bytes);
  for (size_t i = 1; i < all.size(); ++i)
    if (all[i - 1].number >= all[i].number)
      reader.refuse("takeover {} does not come after {}", all[i].number, all[i - 1].number);
  return all;
}

}  // namespace

Takeovers Takeovers::read(Io& io, const fs::path& checkpoints) {
  Takeovers takeovers;
  const fs::path path = checkpoints / kFileName;
  try {
    takeovers.all_ = parse(read_whole_file(io, path, kMostTakeoversBytes), path.string());
  } catch (const IoError& error) {
    if (!error.is_absence()) throw;
  } catch (const Error& error) {
    takeovers.problem_ = error.what();
  }
  return takeovers;
}

void Takeovers::write(Io& io, const fs::path& checkpoints) const {
  std::string format = kTakeoversFormat;
  int64_t version = kTakeoversVersion;
  std::vector<Takeover> all = all_;
  FieldWriter fields;
  file_fields(fields, format, version, all);
  write_whole_file(io, checkpoints / kFileName, sealed_text(fields.json));
}

const Takeover& Takeovers::add(int64_t step, int64_t least_number, std::vector<ConfigDifference> changes) {
  const int64_t before = std::max(newest_number(), least_number);
  if (before >= FieldReader::kMost)
    throw Error(ExitCode::kStorage, fmt::format("{} is an impossible number of a takeover", before),
                fmt::format("somebody changed {} or a manifest beside it: move it away", kFileName));
  all_.push_back({.number = before + 1,
                  .step = step,
                  .owner = describe(this_process()),
                  .job = own_job(),
                  .restart = parse_whole_number(environment_variable("SLURM_RESTART_COUNT")).value_or(0),
                  .time = clock_seconds(CLOCK_REALTIME),
                  .changes = std::move(changes)});
  if (std::ssize(all_) > kMost) all_.erase(all_.begin());
  return all_.back();
}

void Takeovers::restore(const Takeover& takeover) {
  const auto after = std::find_if(all_.begin(), all_.end(),
                                  [&](const Takeover& each) { return each.number >= takeover.number; });
  if (after == all_.end() || after->number != takeover.number) all_.insert(after, takeover);
}

std::vector<ConfigDifference> Takeovers::changes_after(int64_t number) const {
  std::vector<ConfigDifference> changes;
  for (const Takeover& takeover : all_)
    if (takeover.number > number)
      changes.insert(changes.end(), takeover.changes.begin(), takeover.changes.end());
  return changes;
}

std::string Takeovers::refusal(int64_t step, int64_t number) const {
  for (const Takeover& takeover : all_) {
    if (takeover.number <= number || takeover.step >= step) continue;
    return fmt::format("was committed by takeover {}, but takeover {} ({}) had gone on from step {}", number,
                       takeover.number, takeover.owner, takeover.step);
  }
  return "";
}

bool Takeovers::is_in_job() {
  return !own_job().empty();
}

int64_t Takeovers::restarts_from(int64_t step) const {
  const std::string job = own_job();
  if (job.empty()) return 0;
  auto at = all_.rbegin();
  while (at != all_.rend() && at->job == job && at->step == step) ++at;
  const int64_t count = at - all_.rbegin();
  const bool began_before =
      std::any_of(at, all_.rend(), [&](const Takeover& each) { return each.job == job; });
  return count > 0 && !began_before ? count - 1 : count;
}

std::vector<int64_t> last_takeover_steps(Io& io, const fs::path& run) {
  constexpr size_t kMost = 2;
  std::vector<int64_t> steps;
  try {
    const Takeovers takeovers = Takeovers::read(io, run / "checkpoints");
    const std::span<const Takeover> all = takeovers.all();
    for (const Takeover& takeover : all.last(std::min(all.size(), kMost))) steps.push_back(takeover.step);
  } catch (const Error&) {
    return {};
  }
  std::ranges::sort(steps);
  return steps;
}

fs::path folder_of_checkpoint(const fs::path& checkpoint) {
  const fs::path name = checkpoint.filename();
  if (!name.empty() && name != "." && name != ".." && checkpoint.has_parent_path())
    return checkpoint.parent_path();
  // The path becomes absolute, so that "." has a parent, too. Symbolic links are not resolved, because a step
  // directory may be one.
  const fs::path whole = fs::absolute(checkpoint).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).parent_path();
}

void require_not_superseded(Io& io, const fs::path& checkpoint, int64_t step, int64_t number) {
  const fs::path folder = folder_of_checkpoint(checkpoint);
  const std::string refusal = Takeovers::read(io, folder).refusal(step, number);
  if (!refusal.empty())
    throw Error(ExitCode::kStorage, checkpoint.string() + ": " + refusal, hint_for_superseded(folder));
}

std::string hint_for_superseded(const fs::path& folder) {
  return fmt::format(
      "take another checkpoint: ripstop checkpoint list {} shows them; if it is the run's own all the same, "
      "move {} away",
      shell_word(folder.string()), (folder / Takeovers::kFileName).string());
}

}  // namespace ripstop
