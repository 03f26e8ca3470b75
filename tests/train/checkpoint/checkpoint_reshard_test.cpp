// A checkpoint of any mesh loads on any mesh: weights and moments are equal bit for bit, padding is zero.
#include <gtest/gtest.h>

#include <map>

#include "data/hdf5/hdf5.h"
#include "tests/expect_error.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "train/checkpoint/verify.h"

namespace ripstop {
namespace {

// On 8 tensor ranks some slices of the small model have no key-value head, and some no vocabulary. On three
// stages the last has the head alone.
const std::vector<MeshSizes> kMeshes = {
    {1, 1, 1},    {1, 2, 1},    {1, 3, 1},    {1, 4, 1},    {1, 8, 1},    {1, 1, 2},   {1, 1, 4}, {1, 1, 8},
    {1, 2, 2},    {1, 4, 2},    {1, 2, 4},    {1, 5, 3},    {2, 1, 1},    {4, 1, 1},   {2, 2, 2}, {3, 1, 4},
    {1, 1, 1, 2}, {1, 1, 1, 3}, {1, 2, 1, 2}, {1, 1, 2, 2}, {2, 1, 1, 2}, {3, 2, 2, 3}};

std::string text(const MeshSizes& mesh) {
  return fmt::format("{}x{}x{}x{}", mesh.replicate, mesh.fsdp, mesh.tensor, mesh.pipeline);
}

std::map<std::string, std::string> files_of(const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    files[entry.path().filename().string()] = read_bytes(entry.path());
  return files;
}

void check_all_pairs(const ModelConfig& model, const std::vector<MeshSizes>& meshes = kMeshes,
                     DType moments = DType::kFloat32, const LoraConfig& lora = {}) {
  ScratchDirectory scratch;
  QuickIo io;
  for (const MeshSizes& mesh : meshes) {
    SmallRun run(model, mesh, moments, lora);
    run.save_step(io, scratch / text(mesh), 7);
    EXPECT_TRUE(verify_checkpoint(io, scratch / text(mesh) / "step_00000007").empty()) << text(mesh);
  }
  for (const MeshSizes& to : meshes) {
    SmallRun target(model, to, moments, lora);
    for (const MeshSizes& from : meshes) {
      SCOPED_TRACE(text(from) + " -> " + text(to));
      target.fill(1);
      target.read(io, scratch / text(from) / "step_00000007");
      EXPECT_TRUE(target.is_at(7));
    }
  }
}

TEST(CheckpointReshard, EveryPairOfMeshesIsBitEqual) {
  check_all_pairs(small_sizes(false));
}

TEST(CheckpointReshard, EveryPairOfMeshesIsBitEqualWithTiedEmbeddings) {
  check_all_pairs(small_sizes(true));
}

TEST(CheckpointReshard, EveryPairOfMeshesIsBitEqualWithBiasesAndNormsOfHeads) {
  check_all_pairs(with_all_vectors());
}

TEST(CheckpointReshard, MomentsInBfloat16AreBitEqual) {
  check_all_pairs(
      with_all_vectors(),
      {{1, 1, 1}, {1, 2, 1}, {1, 3, 1}, {1, 1, 2}, {1, 2, 2}, {2, 1, 1}, {3, 1, 4}, {1, 5, 3}, {2, 1, 1, 3}},
      DType::kBFloat16);
}

// A stage with the head alone has no adapters.
TEST(CheckpointReshard, AdaptersOfStagesAreBitEqual) {
  for (const bool tied : {false, true})
    check_all_pairs(small_sizes(tied), {{1, 1, 1}, {1, 4, 1}, {1, 1, 2, 2}, {2, 2, 1, 2}, {1, 1, 1, 3}},
                    DType::kFloat32, {.rank = 2, .alpha = 4});
}

// Replicas share the units of their stage. The first stage stores a tied table, the last has it, too.
TEST(CheckpointReshard, EachStageStoresItsOwnUnits) {
  ScratchDirectory scratch;
  QuickIo io;
  SmallRun run(small_sizes(true), {2, 1, 1, 2}), other(small_sizes(true), {1, 2, 1});
  run.save_step(io, scratch.path(), 7);
  const std::filesystem::path directory = scratch / "step_00000007";
  const std::map<std::string, std::pair<std::string, int64_t>> expected = {
      // file: unit and stage
      {"rank_00000.h5", {"vocabulary", 0}},
      {"rank_00001.h5", {"layers.1", 1}},
      {"rank_00002.h5", {"layers.0", 0}}};
  EXPECT_EQ(read_manifest(io, directory).files.size(), expected.size())
      << "two units, two replicas and a table";
  for (const auto& [name, stored] : expected) {
    Hdf5File file(directory / name);
    EXPECT_GT(file.array(stored.first + "/master").count, 0) << name;
    EXPECT_EQ(file.integer("pipeline_index"), stored.second) << name;
  }
  std::filesystem::remove(directory / "rank_00001.h5");
  const std::vector<CheckpointDamage> found = verify_checkpoint(io, directory);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].file + " " + found[0].what, "rank_00001.h5 cannot find: No such file or directory");
  expect_error([&] { other.read(io, directory); }, ExitCode::kStorage, "rank_00001.h5");
}

// A load converts nothing, so bits stay equal.
TEST(CheckpointReshard, MomentsOfAnotherDtypeAreRefused) {
  ScratchDirectory scratch;
  QuickIo io;
  for (const DType stored : {DType::kFloat32, DType::kBFloat16}) {
    SmallRun(small_sizes(), {1, 2, 1}, stored).save_step(io, scratch / std::string(to_string(stored)), 7);
    const auto directory = scratch / std::string(to_string(stored)) / "step_00000007";
    EXPECT_EQ(read_manifest(io, directory).moments, stored);
    const DType wanted = stored == DType::kFloat32 ? DType::kBFloat16 : DType::kFloat32;
    expect_error(
        [&] {
          SmallRun(small_sizes(), {1, 1, 1}, wanted).read(io, directory);
        },
        ExitCode::kStorage,
        fmt::format("its moments are {}, those of the run {}", to_string(stored), to_string(wanted)));
  }
}

TEST(CheckpointReshard, MomentsInBfloat16TakeHalfTheBytes) {
  ScratchDirectory scratch;
  QuickIo io;
  const MeshSizes mesh{1, 2, 2};
  SmallRun run(small_sizes(), mesh, DType::kBFloat16);
  run.save_step(io, scratch.path(), 7);
  const Manifest manifest = read_manifest(io, scratch / "step_00000007");
  EXPECT_TRUE(verify_checkpoint(io, scratch / "step_00000007").empty());
  const int64_t arrays = checkpoint_bytes(run.units(), mesh, DType::kBFloat16);
  EXPECT_EQ(arrays, checkpoint_bytes(run.units(), mesh, DType::kFloat32) * 2 / 3);
  EXPECT_GE(manifest.bytes(), arrays);
  // Arrays begin at page boundaries, and these are smaller than a page.
  EXPECT_LT(manifest.bytes(), checkpoint_bytes(run.units(), mesh, DType::kFloat32));
}

TEST(CheckpointReshard, ThereAndBackGivesTheSameFiles) {
  ScratchDirectory scratch;
  QuickIo io;
  const std::vector<std::pair<MeshSizes, MeshSizes>> pairs = {{{1, 2, 2}, {1, 1, 1}},
                                                              {{1, 1, 1}, {1, 3, 1}},
                                                              {{1, 4, 1}, {2, 1, 4}},
                                                              {{3, 1, 4}, {1, 5, 3}},
                                                              {{2, 2, 1, 2}, {1, 1, 2, 3}}};
  int number = 0;
  for (const auto& [a, b] : pairs) {
    SCOPED_TRACE(text(a) + " -> " + text(b));
    const auto here = scratch / fmt::format("a{}", ++number), there = scratch / fmt::format("b{}", number),
               back = scratch / fmt::format("c{}", number);
    SmallRun first(small_sizes(), a), second(small_sizes(), b), third(small_sizes(), a);
    first.save_step(io, here, 7);
    second.read(io, here / "step_00000007");
    for (const auto& error : second.save(io, there, state_at(7, second.model()))) EXPECT_FALSE(error);
    third.read(io, there / "step_00000007");
    for (const auto& error : third.save(io, back, state_at(7, third.model()))) EXPECT_FALSE(error);
    EXPECT_EQ(files_of(here / "step_00000007"), files_of(back / "step_00000007"));
  }
}

TEST(CheckpointReshard, OddVocabularyOverFourSlicesAndManyBlocks) {
  ScratchDirectory scratch;
  Io io;
  ModelConfig model = small_sizes(true);
  model.vocab_size = 32003;  // 2 MB a state: several hash blocks
  SmallRun first(model, {1, 1, 4}), second(model, {1, 3, 1});
  first.save_step(io, scratch.path(), 7);
  second.read(io, scratch / "step_00000007");
  EXPECT_TRUE(second.is_at(7));
  second.save_step(io, scratch.path(), 8);
  first.read(io, scratch / "step_00000008");
  EXPECT_TRUE(first.is_at(8));
}

TEST(CheckpointReshard, FewerElementsThanRanks) {
  ScratchDirectory scratch;
  QuickIo io;
  ModelConfig model = tiny_model();
  model.vocab_size = 3;
  SmallRun first(model, {2, 6, 4}), second(model, {1, 1, 1}), third(model, {1, 7, 2});
  first.save_step(io, scratch.path(), 7);
  second.read(io, scratch / "step_00000007");
  third.read(io, scratch / "step_00000007");
  EXPECT_TRUE(second.is_at(7));
  EXPECT_TRUE(third.is_at(7));
  const Manifest manifest = read_manifest(io, scratch / "step_00000007");
  EXPECT_EQ(manifest.files.size(), storing_ranks(first.units(), first.mesh()).size());
}

TEST(CheckpointReshard, EveryLogicalElementIsStoredOnce) {
  for (const MeshSizes& mesh : kMeshes) {
    SCOPED_TRACE(text(mesh));
    const std::vector<UnitSpec> units = staged_table(small_sizes(), mesh);
    int64_t stored = 0, expected = 0, bytes = 0;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
      for (const UnitShard& shard : stored_shards(units, mesh, rank)) {
        const UnitLayout layout(units[static_cast<size_t>(shard.unit)], mesh.tensor,
                                mesh_coordinates(mesh, rank).tensor, mesh.fsdp);
        for (const Box& box : layout.boxes(shard.begin, shard.end)) stored += box.rows * box.columns;
        bytes += shard.elements() * 12;
      }
    for (const UnitSpec& unit : units)
      for (const ParameterSpec& p : unit.parameters()) expected += p.count();
    EXPECT_EQ(stored, expected);
    EXPECT_EQ(bytes, checkpoint_bytes(units, mesh, DType::kFloat32));
  }
}

TEST(CheckpointReshard, WeightsAloneAndOneUnitAtATime) {
  ScratchDirectory scratch;
  QuickIo io;
  SmallRun saved(small_sizes(), {1, 4, 2});
  saved.save_step(io, scratch.path(), 7);
  const Checkpoint checkpoint{scratch / "step_00000007", read_manifest(io, scratch / "step_00000007")};
  SmallRun wanted(small_sizes(), {1, 1, 4}), expected(small_sizes(), {1, 1, 4});
  expected.fill(7);
  for (size_t r = 0; r < wanted.ranks().size(); ++r) {
    for (UnitStates unit : wanted.ranks()[r].units()) {
      unit.first_moment = unit.second_moment = nullptr;
      CheckpointReader(io, checkpoint).read(0, {unit});
    }
    for (size_t i = 0; i < wanted.ranks()[r].arrays().size(); i += 3) {
      EXPECT_EQ(wanted.ranks()[r].arrays()[i], expected.ranks()[r].arrays()[i]);
      EXPECT_EQ(wanted.ranks()[r].arrays()[i + 1][0], -7.0f) << "moments were not asked for";
    }
  }
}

TEST(CheckpointReshard, AnotherModelIsRefused) {
  ScratchDirectory scratch;
  QuickIo io;
  SmallRun(small_sizes(), {1, 2, 1}).save_step(io, scratch.path(), 7);
  ModelConfig wider = small_sizes(), deeper = small_sizes();
  wider.vocab_size = 504;
  deeper.num_hidden_layers = 3;
  for (const ModelConfig& model : {wider, deeper, small_sizes(true)}) {
    SmallRun other(model, {1, 1, 1});
    const auto accept = [&](const Checkpoint& c) { check_same_parameters(c.manifest.units, other.units()); };
    std::vector<std::string> warnings;
    const auto thrown = SimulatedRanks(1).run([&](Communicator& world) {
      resume_newest(io, scratch.path(), world, accept, loading_into(io, other.ranks()[0]), warnings);
    });
    ASSERT_TRUE(thrown[0]);
    EXPECT_EQ(thrown[0]->code(), ExitCode::kStorage);
  }
  EXPECT_TRUE(std::filesystem::exists(scratch / "step_00000007"))
      << "a checkpoint of another model is not damaged";
}

TEST(CheckpointReshard, StockHdf5ReadsTheFiles) {
  ScratchDirectory scratch;
  QuickIo io;
  SmallRun run(small_sizes(), {1, 1, 2});
  run.save_step(io, scratch.path(), 7);
  Hdf5File file(scratch / "step_00000007" / "rank_00000.h5");
  const Hdf5Array& array = file.array("layers.1/second_moment", Hdf5Type::kFloat32);
  const std::vector<float>& expected = run.ranks()[0].arrays()[2 * 3 + 2];
  ASSERT_EQ(array.count, static_cast<int64_t>(expected.size()));
  const std::string bytes = read_bytes(scratch / "step_00000007" / "rank_00000.h5");
  EXPECT_EQ(std::memcmp(bytes.data() + array.offset_bytes, expected.data(), expected.size() * 4), 0);
  EXPECT_EQ(file.integer("tensor_index"), 0);
}

TEST(CheckpointReshard, StockHdf5ReadsBfloat16Moments) {
  ScratchDirectory scratch;
  QuickIo io;
  SmallRun run(small_sizes(), {1, 1, 1}, DType::kBFloat16);
  run.save_step(io, scratch.path(), 7);
  Hdf5File file(scratch / "step_00000007" / "rank_00000.h5");
  EXPECT_EQ(file.array("layers.1/master").type, Hdf5Type::kFloat32);
  const Hdf5Array& array = file.array("layers.1/first_moment", Hdf5Type::kBFloat16);
  const std::vector<float>& expected = run.ranks()[0].arrays()[2 * 3 + 1];
  ASSERT_EQ(array.count, static_cast<int64_t>(expected.size()));
  const std::string bytes = read_bytes(scratch / "step_00000007" / "rank_00000.h5");
  EXPECT_EQ(std::memcmp(bytes.data() + array.offset_bytes, expected.data(), expected.size() * 2), 0);
}

}  // namespace
}  // namespace ripstop
