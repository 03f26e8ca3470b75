#include "train/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <utility>

#include "data/process/shell_word.h"
#include "model/core/error.h"
#include "parallel/agreement.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/file_blocks.h"
#include "train/checkpoint/takeovers.h"

namespace ripstop {
namespace {

/// Checks that `pieces` have as many elements as are wanted: otherwise a bug might silently skip some.
void check_coverage(const std::vector<Piece>& pieces, const std::vector<const UnitLayout*>& layouts,
                    int64_t fsdp_index) {
  std::vector<int64_t> found(layouts.size());
  for (const Piece& piece : pieces) found[static_cast<size_t>(piece.unit)] += piece.rows * piece.columns;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const int64_t elements = layouts[i]->shard_elements();
    int64_t wanted = 0;
    for (const Box& box : layouts[i]->boxes(fsdp_index * elements, (fsdp_index + 1) * elements))
      wanted += box.rows * box.columns;
    RIPSTOP_CHECK(found[i] == wanted, "{}: {} of {} elements are in the files", layouts[i]->unit().name,
                  found[i], wanted);
  }
}

/// Clears the padding, which no piece covers, because updates read padding, too.
void zero_padding_of(const std::vector<UnitStates>& units, int64_t fsdp_index) {
  for (const UnitStates& unit : units) {
    const int64_t elements = unit.layout->shard_elements(), begin = fsdp_index * elements;
    for (const UnitState state : kUnitStates)
      if (std::byte* array = unit.array(state))
        zero_padding(*unit.layout, begin, begin + elements, array, state_dtype(state, unit.moments));
  }
}

/// Reads row by row, because rows may lie apart. A dense piece is one long row.
void read_piece(BlockReader& reader, const Piece& piece, const FileBlocks::Array& array, int64_t size,
                std::byte* target) {
  for (int64_t row = 0; row < piece.rows; ++row)
    reader.read(target + (piece.target + row * piece.target_stride) * size, piece.columns * size,
                array.offset_bytes + (piece.source + row * piece.source_stride) * size);
}

/// Throws Error(kStorage) if the checkpoint's moments have another dtype than those of `units`.
void check_moments(const Checkpoint& checkpoint, const std::vector<UnitStates>& units) {
  const DType stored = checkpoint.manifest.moments;
  for (const UnitStates& unit : units)
    if ((unit.first_moment != nullptr || unit.second_moment != nullptr) && unit.moments != stored)
      fail(ExitCode::kStorage, "{}: its moments are {}, those of the run {}", checkpoint.directory.string(),
           to_string(stored), to_string(unit.moments));
}

int64_t bytes_of(const UnitStates& unit, UnitState state) {
  return unit.layout->shard_elements() * element_bytes(state_dtype(state, unit.moments));
}

/// Throws Error(kStorage) if all checkpoints are superseded: without a checkpoint, the run would begin again
/// from the initial weights. Does not throw if the newest takeover itself began there.
void refuse_if_all_are_superseded(Io& io, const std::filesystem::path& directory,
                                  const std::vector<ListedCheckpoint>& listed) {
  if (listed.empty() || !std::ranges::all_of(listed, &ListedCheckpoint::is_superseded)) return;
  const Takeovers takeovers = Takeovers::read(io, directory);
  if (takeovers.all().empty() || takeovers.all().back().step == 0) return;
  throw Error(ExitCode::kStorage,
              fmt::format("{}: the checkpoint of step {}, from which takeover {} went on, is gone; {}",
                          directory.string(), takeovers.all().back().step, takeovers.newest_number(),
                          listed.back().problem),
              hint_for_superseded(directory));
}

/// Only rank 0 gets the list, because listings by thousands of ranks could overload a parallel file system.
/// Collective.
std::vector<ListedCheckpoint> list_on_rank_0(Io& io, const std::filesystem::path& directory,
                                             Communicator& world) {
  std::vector<ListedCheckpoint> listed;
  do_on_rank_0(world, [&] {
    listed = list_checkpoints(io, directory);
    refuse_if_all_are_superseded(io, directory, listed);
  });
  return listed;
}

[[noreturn]] void refuse_unreadable(const std::string& problem, const std::string& hint = "") {
  throw Error(ExitCode::kStorage, "cannot read the newest checkpoint: " + problem,
              (hint.empty() ? "run the same command again when the file system answers" : hint) +
                  "; to go on from an older checkpoint, move this one out of the directory");
}

/// Removes checkpoints from the end of `listed` until one is whole, and returns that checkpoint; nullopt if
/// none is whole. Appends the damaged checkpoints to `damaged`. Throws Error(kStorage) at an unreadable
/// checkpoint, which may be whole.
std::optional<ListedCheckpoint> take_newest(std::vector<ListedCheckpoint>& listed,
                                            std::vector<std::filesystem::path>& damaged,
                                            std::vector<std::string>& warnings) {
  while (!listed.empty()) {
    ListedCheckpoint taken = std::move(listed.back());
    listed.pop_back();
    if (taken.is_unreadable) refuse_unreadable(taken.problem, taken.hint);
    if (taken.manifest) {
      if (taken.is_link)
        warnings.push_back(
            fmt::format("{} is a symbolic link: the checkpoint that it points to is used, and is never "
                        "deleted or changed",
                        taken.directory.string()));
      return taken;
    }
    std::string why = taken.problem;
    if (taken.is_superseded)
      why += fmt::format(" ({})", hint_for_superseded(taken.directory.parent_path()));
    else
      damaged.push_back(taken.directory);
    warnings.push_back("passing over a checkpoint: " + why);
  }
  return std::nullopt;
}

/// The newest checkpoint of rank 0's `listed` that looks whole, with its manifest; nullopt if `listed` has
/// only superseded ones or none. Throws if none is whole, but some are damaged, and the errors of
/// take_newest() and read_manifest(). Collective.
std::optional<Checkpoint> choose(Io& io, const std::filesystem::path& directory, Communicator& world,
                                 std::vector<ListedCheckpoint>& listed,
                                 std::vector<std::filesystem::path>& damaged,
                                 std::vector<std::string>& warnings) {
  int64_t step = -1;
  do_and_agree(world, [&] {
    const std::optional<ListedCheckpoint> newest = take_newest(listed, damaged, warnings);
    if (newest) step = newest->step;
    if (!newest && !damaged.empty())
      throw Error(ExitCode::kStorage, fmt::format("{}: none of its checkpoints is whole", directory.string()),
                  warnings.empty() ? "" : warnings.back());
  });
  step = of_rank_0(world, step);
  if (step < 0) return std::nullopt;
  Checkpoint checkpoint{directory / step_directory_name(step), {}};
  do_and_agree(world, [&] { checkpoint.manifest = read_manifest(io, checkpoint.directory); });
  return checkpoint;
}

}  // namespace

CheckpointReader::CheckpointReader(Io& io, const Checkpoint& checkpoint)
    : io_(io), checkpoint_(checkpoint), plan_(checkpoint.manifest.units, checkpoint.manifest.mesh) {}

const FileBlocks& CheckpointReader::blocks_of(int64_t rank) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(rank);
  if (found != blocks_.end()) return found->second;
  const Manifest& manifest = checkpoint_.manifest;
  const auto file = std::ranges::find(manifest.files, rank, &StoredFile::rank);
  RIPSTOP_CHECK(file != manifest.files.end(), "rank {} has no file", rank);
  FileBlocks blocks = read_sidecar(io_, checkpoint_.directory, *file, manifest.arrays_of(rank));
  return blocks_.emplace(rank, std::move(blocks)).first->second;
}

// Reads the pieces [first, last), which are in the file of one rank.
void CheckpointReader::read_file_pieces(const Piece* first, const Piece* last,
                                        const std::vector<UnitStates>& units) {
  const FileBlocks& blocks = blocks_of(first->rank);
  BlockReader reader(io_, checkpoint_.directory / rank_file_name(first->rank), blocks);
  for (const Piece* begin = first; begin != last;) {
    // [begin, end) are the pieces of one stored shard.
    const Piece* end = std::find_if(begin, last, [&](const Piece& p) { return p.shard != begin->shard; });
    // Reads one state after the other, so that successive pieces are often in one block.
    for (const UnitState state : kUnitStates)
      for (const Piece* piece = begin; piece != end; ++piece)
        if (std::byte* target = units[static_cast<size_t>(piece->unit)].array(state))
          read_piece(
              reader, *piece,
              blocks.arrays[static_cast<size_t>(piece->shard * kUnitStateCount + static_cast<int>(state))],
              element_bytes(state_dtype(state, checkpoint_.manifest.moments)), target);
    begin = end;
  }
}

void CheckpointReader::read(int64_t fsdp_index, const std::vector<UnitStates>& units) {
  std::vector<const UnitLayout*> layouts;
  for (const UnitStates& unit : units) layouts.push_back(unit.layout);
  const std::vector<Piece> pieces = plan_.pieces(layouts, fsdp_index);
  check_coverage(pieces, layouts, fsdp_index);
  check_moments(checkpoint_, units);
  zero_padding_of(units, fsdp_index);
  // Pieces are ordered by rank, so each file is opened once.
  for (const Piece *first = pieces.data(), *end = first + pieces.size(); first != end;) {
    const Piece* last = std::find_if(first, end, [&](const Piece& p) { return p.rank != first->rank; });
    read_file_pieces(first, last, units);
    first = last;
  }
}

std::vector<UnitStates> live_states(ShardedTransformer& model, const AdamW& optimizer) {
  std::vector<UnitStates> states;
  for (size_t u = 0; u < model.trained_units().size(); ++u) {
    const FsdpUnit& unit = model.trained_units()[u];
    states.push_back({.layout = &unit.layout(),
                      .master = static_cast<float*>(unit.master().data),
                      .first_moment = optimizer.first(u).data,
                      .second_moment = optimizer.second(u).data,
                      .moments = optimizer.first(u).dtype});
  }
  return states;
}

void load_states(const std::vector<UnitStates>& units, const Stream& stream,
                 FunctionRef<void(const std::vector<UnitStates>&)> read) {
  if (stream.device().kind == DeviceKind::kCpu) return read(units);
  std::vector<std::byte> host[kUnitStateCount];
  for (const UnitStates& unit : units) {
    for (const UnitState state : kUnitStates)
      host[static_cast<size_t>(state)].assign(static_cast<size_t>(bytes_of(unit, state)), std::byte{0});
    UnitStates staged = unit;
    // Memory from `new` is aligned for every scalar.
    staged.master = reinterpret_cast<float*>(host[0].data());
    staged.first_moment = host[1].data();
    staged.second_moment = host[2].data();
    read({staged});
    for (const UnitState state : kUnitStates)
      copy_bytes(stream, unit.array(state), staged.array(state), bytes_of(unit, state));
  }
}

void require_not_removed(const std::filesystem::path& directory) {
  std::error_code ignored;
  if (std::filesystem::symlink_status(directory, ignored).type() != std::filesystem::file_type::not_found)
    return;
  throw Error(ExitCode::kStorage, fmt::format("{}: was removed while it was read", directory.string()),
              "its run goes on and keeps the newest checkpoints alone: run the same command again; a larger "
              "checkpoint.keep of the run gives more time");
}

Error with_hint_for_damage(const Error& error, const std::filesystem::path& directory,
                           const std::string& way) {
  if (error.code() == ExitCode::kStorage) require_not_removed(directory);
  if (error.code() != ExitCode::kStorage || !error.hint().empty()) return error;
  return {
      error.code(), error.what(),
      fmt::format("ripstop checkpoint verify {} lists the damage; {} takes another checkpoint, and ripstop "
                  "checkpoint list tells which there are",
                  shell_word(directory.string()), way)};
}

std::optional<CheckpointState> resume_newest(Io& io, const std::filesystem::path& directory,
                                             Communicator& world,
                                             const std::function<void(const Checkpoint&)>& accept,
                                             const std::function<void(const Checkpoint&)>& load,
                                             std::vector<std::string>& warnings) {
  std::vector<ListedCheckpoint> listed = list_on_rank_0(io, directory, world);
  std::vector<std::filesystem::path> damaged;  // filled on rank 0 only
  for (;;) {
    const std::optional<Checkpoint> checkpoint = choose(io, directory, world, listed, damaged, warnings);
    if (!checkpoint) return std::nullopt;
    // An error of accept() must end the resume: if this checkpoint is of another run, so are the older ones.
    do_and_agree(world, [&] { accept(*checkpoint); });
    std::string unreadable;  // the reason, on a rank whose system refused to read
    try {
      do_and_agree(world, [&] {
        try {
          load(*checkpoint);
        } catch (const IoError& error) {
          if (!error.is_absence()) unreadable = error.what();
          throw;
        }
      });
    } catch (const Error& error) {
      if (error.code() != ExitCode::kStorage) throw;
      // Only the failed rank knows whether its system refused to read. If it did, the checkpoint may be
      // whole, and the resume ends on all ranks.
      do_and_agree(world, [&] {
        if (!unreadable.empty()) refuse_unreadable(unreadable);
      });
      if (world.rank() == 0) damaged.push_back(checkpoint->directory);
      if (world.rank() == 0) warnings.push_back(fmt::format("passing over a checkpoint: {}", error.what()));
      continue;
    }
    // Renames only after a success: if no checkpoint is whole, damaged ones must keep their names for people.
    for (const std::filesystem::path& path : damaged) {
      const auto aside = move_aside(io, path, path, kDamagedSuffix);
      warnings.push_back(aside ? fmt::format("moved {} to {}", path.string(), aside->filename().string())
                               : fmt::format("cannot move {} aside", path.string()));
    }
    return checkpoint->manifest.state;
  }
}

}  // namespace ripstop
