#include "train/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>

#include "model/core/error.h"
#include "parallel/agreement.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/file_blocks.h"

namespace ripstop {
namespace {

float* array_of(const UnitStates& unit, int state) {
  return state == 0 ? unit.master : state == 1 ? unit.first_moment : unit.second_moment;
}

std::vector<TargetRange> targets_of(const std::vector<UnitStates>& units, int64_t fsdp_index) {
  std::vector<TargetRange> targets;
  for (const UnitStates& unit : units) {
    const int64_t range = unit.layout->shard_elements();
    targets.push_back({unit.layout, fsdp_index * range, (fsdp_index + 1) * range});
  }
  return targets;
}

/// Every target element is in one piece: else a hole would become zeros without a word.
void check_coverage(const std::vector<Piece>& pieces, const std::vector<TargetRange>& targets) {
  std::vector<int64_t> found(targets.size());
  for (const Piece& piece : pieces) found[static_cast<size_t>(piece.unit)] += piece.rows * piece.columns;
  for (size_t i = 0; i < targets.size(); ++i) {
    int64_t wanted = 0;
    for (const Box& box : targets[i].layout->boxes(targets[i].begin, targets[i].end))
      wanted += box.rows * box.columns;
    RIPSTOP_CHECK(found[i] == wanted, "{}: {} of {} elements are in the files",
                  targets[i].layout->unit().name, found[i], wanted);
  }
}

void zero(const std::vector<UnitStates>& units) {
  for (const UnitStates& unit : units)
    for (int state = 0; state < kUnitStateCount; ++state)
      if (float* array = array_of(unit, state)) std::fill(array, array + unit.layout->shard_elements(), 0.0f);
}

void read_piece(BlockReader& reader, const Piece& piece, const FileBlocks::Array& array, float* target) {
  for (int64_t row = 0; row < piece.rows; ++row)
    reader.read(target + piece.target + row * piece.target_stride, piece.columns * 4,
                array.offset_bytes + (piece.source + row * piece.source_stride) * 4);
}

const StoredFile& file_of_rank(const Manifest& manifest, int64_t rank) {
  for (const StoredFile& file : manifest.files)
    if (file.rank == rank) return file;
  RIPSTOP_CHECK(false, "rank {} has no file", rank);
}

/// The pieces [first, last) of one rank's file.
void read_file_pieces(Io& io, const Checkpoint& checkpoint, const Piece* first, const Piece* last,
                      const std::vector<UnitStates>& units) {
  const Manifest& manifest = checkpoint.manifest;
  const StoredFile& file = file_of_rank(manifest, first->rank);
  std::vector<int64_t> elements;
  for (const StoredRange& range : stored_ranges(manifest.units, rank_place(manifest.mesh, file.rank)))
    elements.insert(elements.end(), kUnitStateCount, range.elements());
  const FileBlocks blocks = read_sidecar(io, checkpoint.directory, file, elements);
  BlockReader reader(io, checkpoint.directory / rank_file_name(file.rank), blocks);
  for (const Piece* range = first; range != last;) {
    const Piece* end = std::find_if(range, last, [&](const Piece& p) { return p.range != range->range; });
    // State by state, so that the file is read forwards.
    for (int state = 0; state < kUnitStateCount; ++state)
      for (const Piece* piece = range; piece != end; ++piece)
        if (float* target = array_of(units[static_cast<size_t>(piece->unit)], state))
          read_piece(reader, *piece,
                     blocks.arrays[static_cast<size_t>(piece->range * kUnitStateCount + state)], target);
    range = end;
  }
}

/// A model is loaded whole: parameters that only one side has, or of another shape, mean another model.
void check_same_parameters(const Manifest& manifest, const std::vector<UnitStates>& units) {
  std::vector<TargetRange> nothing;
  std::set<std::string> wanted;
  for (const UnitStates& unit : units) {
    nothing.push_back({unit.layout, 0, 0});
    for (const Box& slice : unit.layout->slices()) wanted.insert(slice.parameter->name);
  }
  plan_reads(manifest.units, manifest.mesh, nothing);  // refuses what is missing
  for (const UnitSpec& unit : manifest.units)
    for (const PhysicalTensor& tensor : unit.tensors)
      for (const ParameterSpec& p : tensor.parts)
        if (wanted.count(p.name) == 0)
          fail(ExitCode::kStorage, "the checkpoint has the parameter {}, the model does not", p.name);
}

/// Rank 0's choice, on all ranks; nothing where it found none.
std::optional<Checkpoint> share_choice(Io& io, const std::filesystem::path& directory, Communicator& world,
                                       const ListedCheckpoint* choice) {
  const std::string step = text_of_rank_0(world, choice == nullptr ? "" : std::to_string(choice->step));
  if (step.empty()) return std::nullopt;
  Checkpoint checkpoint{directory / step_directory_name(std::stoll(step)), {}};
  do_and_agree(world, [&] { checkpoint.manifest = read_manifest(io, checkpoint.directory); });
  return checkpoint;
}

std::vector<ListedCheckpoint> list_on_rank_0(Io& io, const std::filesystem::path& directory,
                                             Communicator& world) {
  std::vector<ListedCheckpoint> listed;
  do_and_agree(world, [&] {
    if (world.rank() == 0) listed = list_checkpoints(io, directory);
  });
  return listed;
}

/// Takes the newest checkpoint that is whole, or may be, off `listed`; what is newer and damaged goes to
/// `damaged`. Null where there is none.
const ListedCheckpoint* take_newest(std::vector<ListedCheckpoint>& listed, ListedCheckpoint& taken,
                                    std::vector<std::filesystem::path>& damaged,
                                    std::vector<std::string>& warnings) {
  while (!listed.empty()) {
    taken = std::move(listed.back());
    listed.pop_back();
    if (taken.manifest || taken.unreadable) return &taken;
    damaged.push_back(taken.directory);
    warnings.push_back("passing over a checkpoint: " + taken.problem);
  }
  return nullptr;
}

[[noreturn]] void refuse_unreadable(const std::string& problem) {
  throw Error(ExitCode::kStorage, fmt::format("cannot read the newest checkpoint: {}", problem),
              "run the same command again when the file system answers; to go on from an older checkpoint, "
              "move this one away");
}

/// Collective: the newest of `listed` (rank 0's) that looks whole. Error(kStorage) where there were some and
/// none is.
std::optional<Checkpoint> choose(Io& io, const std::filesystem::path& directory, Communicator& world,
                                 std::vector<ListedCheckpoint>& listed,
                                 std::vector<std::filesystem::path>& damaged,
                                 std::vector<std::string>& warnings) {
  ListedCheckpoint taken;
  const ListedCheckpoint* choice = take_newest(listed, taken, damaged, warnings);
  do_and_agree(world, [&] {
    if (choice != nullptr && choice->unreadable) refuse_unreadable(choice->problem);
    if (choice == nullptr && !damaged.empty())
      throw Error(ExitCode::kStorage, fmt::format("{}: none of its checkpoints is whole", directory.string()),
                  warnings.empty() ? "" : warnings.back());
  });
  return share_choice(io, directory, world, choice);
}

void move_aside(Io& io, const std::filesystem::path& directory, std::vector<std::string>& warnings) {
  std::filesystem::path aside = directory;
  aside += ".damaged";
  if (io.rename(directory, aside) != 0) {  // one of that name may be there already
    aside += fmt::format(".{}", std::chrono::steady_clock::now().time_since_epoch().count());
    if (io.rename(directory, aside) != 0) {
      warnings.push_back(fmt::format("cannot move {} aside", directory.string()));
      return;
    }
  }
  warnings.push_back(fmt::format("moved {} to {}", directory.string(), aside.filename().string()));
}

}  // namespace

void read_checkpoint(Io& io, const Checkpoint& checkpoint, int64_t fsdp_index,
                     const std::vector<UnitStates>& units) {
  const std::vector<TargetRange> targets = targets_of(units, fsdp_index);
  const std::vector<Piece> pieces = plan_reads(checkpoint.manifest.units, checkpoint.manifest.mesh, targets);
  check_coverage(pieces, targets);
  zero(units);
  for (const Piece *first = pieces.data(), *end = first + pieces.size(); first != end;) {
    const Piece* last = std::find_if(first, end, [&](const Piece& p) { return p.rank != first->rank; });
    read_file_pieces(io, checkpoint, first, last, units);
    first = last;
  }
}

void load_checkpoint(Io& io, const Checkpoint& checkpoint, Communicator& world, int64_t fsdp_index,
                     const std::vector<UnitStates>& units) {
  do_and_agree(world, [&] {
    check_same_parameters(checkpoint.manifest, units);
    read_checkpoint(io, checkpoint, fsdp_index, units);
  });
}

void load_weights(Io& io, const Checkpoint& checkpoint, Communicator& world,
                  const std::vector<const UnitLayout*>& layouts, std::span<float> staging,
                  FunctionRef<void(size_t unit, std::span<const float> weights)> take) {
  do_and_agree(world, [&] {
    std::vector<UnitStates> units;
    for (const UnitLayout* layout : layouts) units.push_back({.layout = layout});
    check_same_parameters(checkpoint.manifest, units);
    for (size_t u = 0; u < units.size(); ++u) {
      const int64_t elements = units[u].layout->elements();
      RIPSTOP_CHECK(elements == units[u].layout->shard_elements(), "{} is laid out for several shards",
                    units[u].layout->unit().name);
      RIPSTOP_CHECK(elements <= std::ssize(staging), "{} elements for a unit of {}", staging.size(),
                    elements);
      units[u].master = staging.data();
      read_checkpoint(io, checkpoint, /*fsdp_index=*/0, {units[u]});
      take(u, staging.first(static_cast<size_t>(elements)));
    }
  });
}

std::optional<Checkpoint> newest_checkpoint(Io& io, const std::filesystem::path& directory,
                                            Communicator& world, std::vector<std::string>& warnings) {
  std::vector<ListedCheckpoint> listed = list_on_rank_0(io, directory, world);
  std::vector<std::filesystem::path> damaged;
  return choose(io, directory, world, listed, damaged, warnings);
}

std::optional<CheckpointState> resume_newest(Io& io, const std::filesystem::path& directory,
                                             Communicator& world, int64_t fsdp_index,
                                             const std::vector<UnitStates>& units,
                                             const std::function<void(const Checkpoint&)>& accept,
                                             std::vector<std::string>& warnings) {
  std::vector<ListedCheckpoint> listed = list_on_rank_0(io, directory, world);
  std::vector<std::filesystem::path> damaged;  // of rank 0
  for (;;) {
    const std::optional<Checkpoint> checkpoint = choose(io, directory, world, listed, damaged, warnings);
    if (!checkpoint) return std::nullopt;
    accept(*checkpoint);
    check_same_parameters(checkpoint->manifest, units);
    std::string unreadable;  // on a rank whose system refused
    try {
      do_and_agree(world, [&] {
        try {
          read_checkpoint(io, *checkpoint, fsdp_index, units);
        } catch (const IoError& error) {
          if (!error.is_absence()) unreadable = error.what();
          throw;
        }
      });
    } catch (const Error& error) {
      if (error.code() != ExitCode::kStorage) throw;
      do_and_agree(world, [&] {
        if (!unreadable.empty()) refuse_unreadable(unreadable);
      });
      if (world.rank() == 0) damaged.push_back(checkpoint->directory);
      if (world.rank() == 0) warnings.push_back(fmt::format("passing over a checkpoint: {}", error.what()));
      continue;
    }
    for (const std::filesystem::path& path : damaged) move_aside(io, path, warnings);
    return checkpoint->manifest.state;
  }
}

}  // namespace ripstop
