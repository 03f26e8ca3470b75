#include "train/checkpoint/checkpoint_writer.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <sstream>
#include <utility>

#include "data/hash.h"
#include "model/core/error.h"
#include "parallel/agreement.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/file_blocks.h"
#include "train/checkpoint/rank_file.h"
#include "train/machine/version.h"

namespace ripstop {
namespace {

/// A part of a name that no other attempt has.
std::string nonce() {
  return fmt::format("{}.{}", ::getpid(), std::chrono::steady_clock::now().time_since_epoch().count());
}

/// One rank's line of the vote; empty where it writes no file.
std::string line_of(const StoredFile& file) {
  return fmt::format("{} {} {} {}", file.rank, file.bytes, file.sidecar_bytes, file.sidecar_hash);
}

StoredFile file_of_line(const std::string& line) {
  StoredFile file;
  std::istringstream words(line);
  words >> file.rank >> file.bytes >> file.sidecar_bytes >> file.sidecar_hash;
  RIPSTOP_CHECK(!words.fail(), "'{}' is no line of a vote", line);
  return file;
}

bool exists(Io& io, const std::filesystem::path& path) {
  Io::Status status;
  if (io.status(path, status) == 0) return true;
  if (errno != ENOENT) fail_storage(path, "find it", errno);
  return false;
}

}  // namespace

class CheckpointWriter::Impl {
 public:
  Impl(Io& io, std::filesystem::path directory, Communicator& world, const RankPlace& place,
       std::vector<UnitStates> units);
  SaveReport save(const CheckpointState& state, const SavePolicy& policy);

 private:
  bool leads() const { return world_->rank() == 0; }
  void begin(const std::filesystem::path& attempt);
  StoredFile write(const std::filesystem::path& attempt, bool reads_back);
  Manifest collect(const CheckpointState& state, const std::string& line);
  void commit(const std::filesystem::path& attempt, const Manifest& manifest, const SavePolicy& policy,
              std::vector<std::string>& warnings);
  void replace(const std::filesystem::path& attempt, const std::filesystem::path& target,
               std::vector<std::string>& warnings);

  Io* io_;
  std::filesystem::path directory_;
  Communicator* world_;
  RankPlace place_;
  std::vector<UnitSpec> specs_;
  std::vector<StoredRange> ranges_;
  std::vector<const float*> sources_;
  std::optional<RankFileSkeleton> skeleton_;
};

CheckpointWriter::Impl::Impl(Io& io, std::filesystem::path directory, Communicator& world,
                             const RankPlace& place, std::vector<UnitStates> units)
    : io_(&io), directory_(std::move(directory)), world_(&world), place_(place) {
  RIPSTOP_CHECK(world.size() == place.mesh.ranks(), "a mesh of {} on {} ranks", place.mesh.ranks(),
                world.size());
  for (const UnitStates& unit : units) specs_.push_back(unit.layout->unit());
  ranges_ = stored_ranges(specs_, place);
  for (const StoredRange& range : ranges_) {
    const UnitStates& unit = units[static_cast<size_t>(range.unit)];
    const int64_t skipped = range.begin - place.fsdp_index * unit.layout->shard_elements();
    RIPSTOP_CHECK(skipped >= 0 && skipped + range.elements() <= unit.layout->shard_elements(),
                  "unit {} has another layout", unit.layout->unit().name);
    for (const float* state : {unit.master, unit.first_moment, unit.second_moment})
      sources_.push_back(state + skipped);
  }
}

void CheckpointWriter::Impl::begin(const std::filesystem::path& attempt) {
  if (io_->mkdir(directory_) != 0 && errno != EEXIST) fail_storage(directory_, "make the directory", errno);
  if (io_->mkdir(attempt) != 0) fail_storage(attempt, "make the directory", errno);
  sync_directory(*io_, directory_);
}

StoredFile CheckpointWriter::Impl::write(const std::filesystem::path& attempt, bool reads_back) {
  const int64_t rank = place_.rank();
  const std::filesystem::path path = attempt / rank_file_name(rank);
  if (!skeleton_)
    skeleton_ = make_skeleton(*io_, attempt / (rank_file_name(rank) + ".skeleton"), specs_, place_, ranges_);
  const FileBlocks blocks = write_rank_file(*io_, path, *skeleton_, sources_);
  if (reads_back) ripstop::read_back(*io_, path, blocks);
  const std::string sidecar = sidecar_bytes(blocks);
  write_file(*io_, attempt / sidecar_file_name(rank), sidecar);
  StreamHash hash;
  hash.update(sidecar);
  return {rank, blocks.bytes, static_cast<int64_t>(sidecar.size()), hash.hex()};
}

Manifest CheckpointWriter::Impl::collect(const CheckpointState& state, const std::string& line) {
  Manifest manifest;
  manifest.state = state;
  manifest.mesh = place_.mesh;
  manifest.written_by = fmt::format("ripstop {} ({})", version(), git_commit());
  manifest.units = specs_;
  for (const std::string& other : world_->all_gather_text(line))
    if (!other.empty()) manifest.files.push_back(file_of_line(other));
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const StoredFile& a, const StoredFile& b) { return a.rank < b.rank; });
  return manifest;
}

// What stands in the way is moved aside first. Killed between the two renames, the next start of the run puts
// it back (prepare_checkpoint_directory).
void CheckpointWriter::Impl::replace(const std::filesystem::path& attempt,
                                     const std::filesystem::path& target,
                                     std::vector<std::string>& warnings) {
  const std::filesystem::path aside =
      directory_ / fmt::format(".old.{}.{}", target.filename().string(), nonce());
  rename_path(*io_, target, aside);
  if (io_->rename(attempt, target) != 0) {
    const int error = errno;
    io_->rename(aside, target);
    fail_storage(attempt, "rename", error);
  }
  sync_directory(*io_, directory_);
  if (!remove_tree(*io_, aside)) warnings.push_back(fmt::format("cannot remove {}", aside.string()));
}

void CheckpointWriter::Impl::commit(const std::filesystem::path& attempt, const Manifest& manifest,
                                    const SavePolicy& policy, std::vector<std::string>& warnings) {
  const std::string text = manifest_text(manifest);
  parse_manifest(text, "the manifest to be written");  // what could not be read back is not committed
  const std::filesystem::path unnamed = attempt / "manifest.tmp";
  write_file(*io_, unnamed, text);
  rename_path(*io_, unnamed, attempt / Manifest::kFileName);
  sync_directory(*io_, attempt);
  if (policy.lock != nullptr) policy.lock->check_still_owned();

  const std::filesystem::path target = directory_ / step_directory_name(manifest.state.step);
  if (exists(*io_, target)) {
    replace(attempt, target, warnings);
  } else {
    rename_path(*io_, attempt, target);
    sync_directory(*io_, directory_);
  }
}

SaveReport CheckpointWriter::Impl::save(const CheckpointState& state, const SavePolicy& policy) {
  const std::string name =
      text_of_rank_0(*world_, fmt::format(".tmp.{}.{}", step_directory_name(state.step), nonce()));
  const std::filesystem::path attempt = directory_ / name;
  SaveReport report{directory_ / step_directory_name(state.step), 0, {}, {}};
  try {
    do_and_agree(*world_, [&] {
      if (leads()) begin(attempt);
    });
    std::string line;
    do_and_agree(*world_, [&] {
      if (!ranges_.empty()) line = line_of(write(attempt, policy.read_back));
    });
    const Manifest manifest = collect(state, line);
    do_and_agree(*world_, [&] {
      if (leads()) commit(attempt, manifest, policy, report.warnings);
    });
    report.bytes = manifest.bytes();
  } catch (const Error& error) {
    // All ranks know, so none writes any more.
    if (leads() && error.code() != ExitCode::kCommunication) remove_tree(*io_, attempt);
    throw;
  }
  if (leads()) {
    std::optional<int64_t> best;
    if (state.best) best = state.best->step;
    report.removed = remove_old_checkpoints(*io_, directory_, state.step, policy.keep, best, report.warnings);
  }
  return report;
}

CheckpointWriter::CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world,
                                   const RankPlace& place, std::vector<UnitStates> units)
    : impl_(std::make_unique<Impl>(io, std::move(directory), world, place, std::move(units))) {}

CheckpointWriter::~CheckpointWriter() = default;

SaveReport CheckpointWriter::save(const CheckpointState& state, const SavePolicy& policy) {
  return impl_->save(state, policy);
}

}  // namespace ripstop
