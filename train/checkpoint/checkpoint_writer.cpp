#include "train/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "data/files/directory.h"
#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "model/core/error.h"
#include "parallel/agreement.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/file_blocks.h"
#include "train/machine/version.h"

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;

/// The takeover that committed `checkpoint`; -1 for a damaged checkpoint, which may be replaced. Throws
/// OtherFormat, and IoError if the system refuses to read the manifest: the checkpoint may be whole.
int64_t takeover_of(Io& io, const std::filesystem::path& checkpoint) {
  try {
    return read_manifest(io, checkpoint).state.takeover;
  } catch (const OtherFormat&) {
    throw;
  } catch (const IoError& error) {
    if (!error.is_absence()) throw;
  } catch (const Error&) {
  }
  return -1;
}

/// Ends the profiler range of a save's thread at scope exit, if `recorder` is not null.
struct SaveRange {
  RangeRecorder* recorder;
  size_t track;
  ~SaveRange() {
    if (recorder != nullptr) recorder->end(track);
  }
};

// Threads of a save during training: while one waits for the disk, the other copies and hashes.
constexpr int64_t kBackgroundThreads = 2;

// Pauses: before a vote while this rank's thread writes; after a vote while only other ranks write.
constexpr std::chrono::milliseconds kWritePause{100}, kVotePause{10};

}  // namespace

CheckpointWriter::CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world,
                                   const MeshSizes& mesh, std::vector<UnitSpec> units, Snapshot& snapshot)
    : CheckpointWriter(io, std::move(directory), world, mesh, std::move(units), snapshot.moments(),
                       snapshot.sources()) {
  snapshot_ = &snapshot;
}

CheckpointWriter::CheckpointWriter(Io& io, std::filesystem::path directory, Communicator& world,
                                   const MeshSizes& mesh, std::vector<UnitSpec> units, DType moments,
                                   std::vector<ArraySource> sources)
    : io_(io),
      directory_(std::move(directory)),
      world_(world),
      mesh_(mesh),
      specs_(std::move(units)),
      moments_(moments),
      sources_(std::move(sources)),
      shards_(stored_shards(specs_, mesh, world.rank())) {
  RIPSTOP_CHECK(world.size() == mesh.ranks(), "a mesh of {} on {} ranks", mesh.ranks(), world.size());
  RIPSTOP_CHECK(shards_.size() * kUnitStateCount == sources_.size(), "{} sources for {} shards",
                sources_.size(), shards_.size());
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::begin(const CheckpointState& state, const SavePolicy& policy) {
  RIPSTOP_CHECK(!has_begun(), "a save of step {} is under way", save_->state.step);
  const std::string name = text_of_rank_0(world_, temporary_name(kAttemptPrefix, state.step));
  const std::filesystem::path attempt = directory_ / name;
  try {
    // The ranks agree on the directory first, so that no rank writes into one that does not exist.
    do_on_rank_0(world_, [&] {
      make_directory(io_, directory_);
      // mkdir must fail if the directory exists, because two attempts must never write into one directory.
      if (io_.mkdir(attempt) != 0) fail_storage(attempt, "make the directory", errno);
      sync_directory(io_, directory_);
    });
    do_and_agree(world_, [&] {
      if (skeleton_ || shards_.empty()) return;
      const int64_t rank = world_.rank();
      skeleton_ = make_skeleton(io_, attempt / (rank_file_name(rank) + ".skeleton"), specs_,
                                mesh_coordinates(mesh_, rank), shards_, moments_);
    });
  } catch (const Error& error) {
    give_up(error, attempt);
    throw;
  }
  save_ = std::make_unique<Save>();
  save_->state = state;
  save_->policy = policy;
  save_->attempt = attempt;
  if (snapshot_ != nullptr) snapshot_->hold(policy.in_background);
  save_->work.emplace([this, save = save_.get()](const BackgroundWork& work) { write(*save, work); });
}

bool CheckpointWriter::is_writing() const {
  return save_ != nullptr && !save_->work->is_done();
}

int64_t CheckpointWriter::progress() const {
  return save_ != nullptr ? save_->work->progress() : 0;
}

// Runs on the thread of the save.
void CheckpointWriter::write(Save& save, const BackgroundWork& work) {
  // Releases the snapshot at any exit, so that training does not wait for a failed save.
  const std::unique_ptr<Snapshot, void (*)(Snapshot*)> released(snapshot_, [](Snapshot* s) { s->release(); });
  RangeRecorder* const recorder = save.policy.recorder;
  const SaveRange range{
      recorder,
      recorder == nullptr ? 0 : recorder->begin("save", fmt::format("save of step {}", save.state.step))};
  if (snapshot_ != nullptr) snapshot_->copy_kept(work);
  // Lowers the priority only after copy_kept(), because the next update waits for the copies.
  if (save.policy.in_background) work.yield_processors();
  if (!shards_.empty()) save.file = write_file(save, work);
  save.milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - save.begin).count();
}

StoredFile CheckpointWriter::write_file(const Save& save, const BackgroundWork& work) {
  const int64_t rank = world_.rank();
  RankFileWork file{.sources = sources_,
                    .threads = save.policy.in_background ? kBackgroundThreads : kBlockThreads};
  if (snapshot_ != nullptr) {
    file.first = snapshot_->urgent_arrays();
    file.copied = [this](int64_t array) { snapshot_->array_is_read(array); };
  }
  int64_t progress = 0;
  const FileBlocks blocks =
      write_rank_file(io_, save.attempt / rank_file_name(rank), *skeleton_, file, [&](int64_t now) {
        if (std::exchange(progress, now) != now) work.count_progress();
        if (work.stop_requested())
          fail(ExitCode::kStorage, "the save of step {} was given up", save.state.step);
      });
  const std::string sidecar = sidecar_bytes(blocks);
  create_file(io_, save.attempt / sidecar_file_name(rank), sidecar);
  StreamHash hash;
  hash.update(sidecar);
  return {rank, blocks.bytes, static_cast<int64_t>(sidecar.size()), hash.hex()};
}

void CheckpointWriter::await_writers(Save& save, const DiskStillness& seen) {
  std::exception_ptr watched;
  DiskVotes votes(world_, save.policy.patience);
  votes.count_from(seen);
  for (bool all = false; !all;) {
    const bool done = save.work->wait(kWritePause);
    try {
      if (save.policy.watch && !watched) save.policy.watch();
    } catch (...) {
      watched = std::current_exception();
      save.work->request_stop();
    }
    all = votes.all_done(done, save.work->progress());
    if (done && !all) std::this_thread::sleep_for(kVotePause);
  }
  do_and_agree(world_, [&] {
    if (watched) std::rethrow_exception(watched);
    save.work->rethrow();
  });
}

Manifest CheckpointWriter::collect(const Save& save, double& write_seconds) {
  Manifest manifest{.state = save.state,
                    .mesh = mesh_,
                    .moments = moments_,
                    .written_by = fmt::format("ripstop {} ({})", version(), git_commit()),
                    .units = specs_,
                    .files = {}};
  const auto milliseconds = of_all_ranks(world_, save.milliseconds),
             bytes = of_all_ranks(world_, save.file.bytes),
             sidecar_bytes = of_all_ranks(world_, save.file.sidecar_bytes);
  const std::vector<std::string> hashes = world_.all_gather_text(save.file.sidecar_hash);
  for (size_t rank = 0; rank < bytes.size(); ++rank)
    if (bytes[rank] > 0)
      manifest.files.push_back({static_cast<int64_t>(rank), bytes[rank], sidecar_bytes[rank], hashes[rank]});
  write_seconds = 1e-3 * static_cast<double>(*std::ranges::max_element(milliseconds));
  return manifest;
}

// Undoes the rename if the sync fails: a save that fails leaves nothing.
void CheckpointWriter::put_in_place(const Save& save, const std::filesystem::path& target) {
  rename_path(io_, save.attempt, target);
  try {
    sync_directory(io_, directory_);
  } catch (const Error&) {
    // A process that has taken the run over may have loaded this checkpoint.
    if (save.policy.check_owner) save.policy.check_owner();
    io_.rename(target, save.attempt);
    throw;
  }
}

// A rename cannot replace a directory that is not empty, so the old checkpoint is moved aside first. If the
// process is killed between the renames, prepare_checkpoint_directory() puts the old checkpoint back.
void CheckpointWriter::replace(const Save& save, const std::filesystem::path& target,
                               std::vector<std::string>& warnings) {
  const CheckpointState& state = save.state;
  const std::filesystem::path aside = directory_ / temporary_name(kReplacedPrefix, state.step);
  rename_path(io_, target, aside);
  int64_t number = -1;
  try {
    // An owner that was taken over must not replace the checkpoint of its successor. The check comes after
    // the rename, because nobody puts another checkpoint at `aside`.
    number = takeover_of(io_, aside);
    if (number > state.takeover)
      throw Error(ExitCode::kStorage,
                  fmt::format("{} was committed by takeover {}, this is takeover {}: the run was taken over",
                              target.string(), number, state.takeover),
                  "the other process goes on with the run");
    put_in_place(save, target);
  } catch (const Error& error) {
    if (io_.rename(aside, target) == 0) throw;
    throw Error(error.code(), fmt::format("{}; the earlier checkpoint is {}", error.what(), aside.string()),
                error.hint());
  }
  // A checkpoint of an earlier takeover is moved aside. remove_old_checkpoints() decides when to delete it.
  if (number >= 0 && number < state.takeover && move_aside(io_, aside, target, kSupersededSuffix)) return;
  if (!remove_tree(io_, aside)) warnings.push_back(fmt::format("cannot remove {}", aside.string()));
}

void CheckpointWriter::commit_attempt(const Save& save, const Manifest& manifest,
                                      std::vector<std::string>& warnings) {
  const std::string text = manifest_text(manifest);
  parse_manifest(text, "the manifest to be written");  // throws if no load would accept this manifest
  // All ranks have synced their files. This call syncs manifest and directory, before the rename commits.
  write_whole_file(io_, save.attempt / Manifest::kFileName, text);
  // The check comes as late as possible: a takeover between this check and the rename goes unseen.
  if (save.policy.check_owner) save.policy.check_owner();

  const std::filesystem::path target = directory_ / step_directory_name(manifest.state.step);
  if (path_exists(io_, target)) return replace(save, target, warnings);
  put_in_place(save, target);
}

// No rank writes into the attempt any more, except after a communication error. Then the attempt stays until
// the next start of the run.
void CheckpointWriter::give_up(const Error& error, const std::filesystem::path& attempt) {
  if (leads() && error.code() != ExitCode::kCommunication) remove_tree(io_, attempt);
}

void CheckpointWriter::remove_old(const Save& save, SaveReport& report) {
  try {
    // Checks again, because the commit may have taken long, and a new owner may need the old checkpoints.
    if (save.policy.check_owner) save.policy.check_owner();
  } catch (const Error& error) {
    report.warnings.push_back(fmt::format("old checkpoints were not removed: {}", error.what()));
    return;
  }
  std::optional<int64_t> best;
  if (save.state.best) best = save.state.best->step;
  remove_old_checkpoints(io_, directory_, save.state.step, save.policy.keep, best, report.warnings);
}

SaveReport CheckpointWriter::commit(const DiskStillness& seen) {
  RIPSTOP_CHECK(has_begun(), "no save was begun");
  const CheckpointState state = save_->state;
  SaveReport report{.directory = directory_ / step_directory_name(state.step), .warnings = {}};
  Clock::time_point written;
  try {
    await_writers(*save_, seen);
    written = Clock::now();
    const Manifest manifest = collect(*save_, report.seconds);
    do_on_rank_0(world_, [&] { commit_attempt(*save_, manifest, report.warnings); });
    report.bytes = manifest.bytes();
  } catch (const Error& error) {
    give_up(error, save_->attempt);
    // After a communication error, the thread may be stuck in a call: `save_` must then stay.
    if (save_->work->is_done()) save_.reset();
    throw;
  }
  const std::unique_ptr<Save> save = std::move(save_);
  // All ranks wait for rank 0: a slow rank 0 would seem dead in the next step's collectives.
  do_on_rank_0(world_, [&] { remove_old(*save, report); });
  report.seconds += std::chrono::duration<double>(Clock::now() - written).count();
  return report;
}

bool CheckpointWriter::ends_within(std::chrono::milliseconds most) {
  if (save_ == nullptr) return true;
  save_->work->request_stop();
  return save_->work->wait(most);
}

SaveReport CheckpointWriter::save(const CheckpointState& state, const SavePolicy& policy) {
  begin(state, policy);
  return commit();
}

}  // namespace ripstop
