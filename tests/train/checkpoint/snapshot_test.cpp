// Saves beside training: the files have the values at the start of the save, whatever changes the arrays once
// they are free.
#include "train/checkpoint/snapshot.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "data/files/whole_file.h"
#include "tests/train/checkpoint/checkpoint_model.h"

namespace ripstop {
namespace {

constexpr int64_t kEverything = int64_t{1} << 40;

/// Files of many blocks: embedding and head have 6 MB each.
ModelConfig model_of_blocks() {
  ModelConfig model = small_sizes();
  model.hidden_size = 64;
  model.vocab_size = 8003;
  return model;
}

/// Holds writes back until a test lets them begin.
class GatedIo : public QuickIo {
 public:
  ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) override {
    while (!is_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return QuickIo::pwrite(file, bytes, count, offset);
  }
  std::atomic<bool> is_open = true;
};

std::map<std::string, std::string> files_below(const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    files[entry.path().filename().string()] =
        read_whole_file(entry.path(), int64_t{1} << 26, ExitCode::kStorage);
  return files;
}

/// The bytes that rank 0 stores of `run`'s first `count` units.
int64_t bytes_of_first(SmallRun& run, DType moments, size_t count) {
  std::vector<UnitShard> shards = stored_shards(run.units(), run.mesh(), 0);
  shards.resize(std::min(count, shards.size()));
  return snapshot_bytes(shards, moments);
}

void expect_equal_files(const ModelConfig& model, const MeshSizes& mesh, DType moments) {
  SCOPED_TRACE(fmt::format("{} in {}", mesh.to_text(), to_string(moments)));
  ScratchDirectory scratch;
  QuickIo io;
  SmallRun run(model, mesh, moments);
  run.fill(5);
  const CheckpointState state = state_at(5, run.model());
  for (const auto& error : run.save(io, scratch / "plain", state)) ASSERT_FALSE(error) << error->what();
  const auto expected = files_below(scratch / "plain" / step_directory_name(5));
  ASSERT_GE(std::ssize(expected), 3);
  for (const int64_t most : {int64_t{0}, bytes_of_first(run, moments, 2), kEverything})
    for (const bool in_background : {false, true}) {
      SCOPED_TRACE(fmt::format("{} bytes, background {}", most, in_background));
      run.fill(5);
      const std::filesystem::path directory = scratch / fmt::format("{}_{}", most, in_background);
      const auto thrown = SimulatedRanks(mesh.ranks()).run([&](Communicator& world) {
        RankMemory& memory = run.ranks()[static_cast<size_t>(world.rank())];
        SavingRank rank(io, directory, world, mesh, run.units(), memory, most);
        EXPECT_EQ(rank.ledger.now()[MemoryCategory::kSnapshot], rank.snapshot.kept_bytes());
        EXPECT_LE(rank.snapshot.kept_bytes(), most);
        rank.writer.begin(state, {.in_background = in_background});
        overwrite_when_free(rank.snapshot, memory);
        rank.writer.commit();
      });
      for (const auto& error : thrown) ASSERT_FALSE(error) << error->what();
      EXPECT_EQ(files_below(directory / step_directory_name(5)), expected);
    }
}

TEST(Snapshot, TheFilesAreThoseOfASaveThatTrainingWaitsFor) {
  for (const MeshSizes& mesh : {MeshSizes{1, 1, 1},
                                {1, 2, 1},
                                {1, 1, 2},
                                {2, 2, 1},
                                {2, 1, 2},
                                {1, 3, 1},
                                {1, 1, 1, 2},
                                {2, 1, 1, 3}})
    expect_equal_files(small_sizes(), mesh, DType::kFloat32);
  expect_equal_files(model_of_blocks(), {1, 1, 1}, DType::kFloat32);
  expect_equal_files(model_of_blocks(), {1, 2, 1}, DType::kBFloat16);
}

TEST(Snapshot, KeptUnitsAreFreeBeforeAnythingIsWrittenAndOthersAfter) {
  ScratchDirectory scratch;
  GatedIo io;
  SmallRun run(model_of_blocks(), {1, 1, 1});
  run.fill(5);
  const auto thrown = SimulatedRanks(1).run([&](Communicator& world) {
    RankMemory& memory = run.ranks()[0];
    SavingRank rank(io, scratch.path(), world, run.mesh(), run.units(), memory,
                    bytes_of_first(run, DType::kFloat32, 2));
    ASSERT_EQ(rank.snapshot.kept(), 2);
    io.is_open = false;
    rank.writer.begin(state_at(5, run.model()), {.in_background = true});
    rank.snapshot.wait_for(0);
    rank.snapshot.wait_for(1);
    EXPECT_TRUE(rank.writer.is_writing());
    EXPECT_TRUE(rank.snapshot.is_free(5)) << "another stage has more units";
    EXPECT_FALSE(rank.snapshot.is_free(3)) << "the last unit is larger than the blocks under way";
    io.is_open = true;
    rank.snapshot.wait_for(3);
    rank.writer.commit();
    EXPECT_FALSE(rank.writer.is_writing());
  });
  ASSERT_FALSE(thrown[0]) << thrown[0]->what();
}

TEST(Snapshot, AFailureFreesAllUnits) {
  ScratchDirectory scratch;
  struct NoRoom : QuickIo {
    ssize_t pwrite(int, const void*, size_t, int64_t) override { return errno = ENOSPC, -1; }
  } io;
  SmallRun run(small_sizes(), {1, 1, 1});
  run.fill(5);
  const auto thrown = SimulatedRanks(1).run([&](Communicator& world) {
    RankMemory& memory = run.ranks()[0];
    SavingRank rank(io, scratch.path(), world, run.mesh(), run.units(), memory, /*most_bytes=*/0);
    rank.writer.begin(state_at(5, run.model()), {.in_background = true});
    overwrite_when_free(rank.snapshot, memory);  // would wait for ever
    EXPECT_THROW(rank.writer.commit(), Error);
    EXPECT_FALSE(rank.writer.has_begun());
    EXPECT_TRUE(std::filesystem::is_empty(scratch.path())) << "the attempt is removed";
  });
  ASSERT_FALSE(thrown[0]) << thrown[0]->what();
}

TEST(Snapshot, KeepsTheFirstUnitsThatFit) {
  const std::vector<UnitSpec> units = parameter_table(small_sizes());
  const std::vector<UnitShard> shards = stored_shards(units, {1, 1, 1}, 0);
  const int64_t all = snapshot_bytes(shards, DType::kFloat32);
  EXPECT_EQ(all, checkpoint_bytes(units, {1, 1, 1}, DType::kFloat32));
  EXPECT_EQ(std::ssize(kept_shards(shards, DType::kFloat32, all)), std::ssize(shards));
  EXPECT_EQ(std::ssize(kept_shards(shards, DType::kFloat32, all - 1)), std::ssize(shards) - 1);
  EXPECT_TRUE(kept_shards(shards, DType::kFloat32, 0).empty());
}

// The destructor ends the thread of a save, and leaves no checkpoint.
TEST(Snapshot, ASaveThatNobodyCommitsIsNone) {
  ScratchDirectory scratch;
  QuickIo io;
  SmallRun run(small_sizes(), {1, 1, 1});
  run.fill(5);
  const auto thrown = SimulatedRanks(1).run([&](Communicator& world) {
    SavingRank rank(io, scratch.path(), world, run.mesh(), run.units(), run.ranks()[0], kEverything);
    rank.writer.begin(state_at(5, run.model()), {.in_background = true});
  });
  ASSERT_FALSE(thrown[0]) << thrown[0]->what();
  EXPECT_TRUE(list_checkpoints(io, scratch.path()).empty());
  prepare_checkpoint_directory(io, scratch.path());
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

}  // namespace
}  // namespace ripstop
