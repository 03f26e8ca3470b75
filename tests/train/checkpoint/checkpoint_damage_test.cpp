// Every damage to the files of a checkpoint is found, and the finding names the file.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/data/fault_io.h"
#include "tests/expect_error.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "train/checkpoint/file_blocks.h"
#include "train/checkpoint/verify.h"

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

/// A checkpoint of step 7 on the disk, and a copy of its files in memory.
class CheckpointDamageTest : public testing::Test {
 protected:
  void SetUp() override {
    SmallRun run(tiny_model(), {1, 2, 1});
    run.save_step(io_, scratch_.path(), 7);
    directory_ = scratch_ / "step_00000007";
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      files_[entry.path().filename().string()] = read_bytes(entry.path());
    ASSERT_EQ(files_.size(), 5u);
  }
  bool is_whole() { return verify_checkpoint(io_, directory_).empty(); }
  void put(const std::string& name, const std::string& bytes) { write_bytes(directory_ / name, bytes); }
  void expect_finding(const std::string& file, const std::string& what) {
    const auto found = verify_checkpoint(io_, directory_);
    ASSERT_FALSE(found.empty());
    bool seen = false;
    for (const CheckpointDamage& damage : found)
      seen |= damage.file == file && damage.what.find(what) != std::string::npos;
    EXPECT_TRUE(seen) << found[0].file << ": " << found[0].what;
  }

  QuickIo io_;
  ScratchDirectory scratch_;
  std::filesystem::path directory_;
  std::map<std::string, std::string> files_;
};

TEST_F(CheckpointDamageTest, FlippedBitsAreFound) {
  EXPECT_TRUE(is_whole());
  for (const auto& [name, bytes] : files_) {
    std::fstream file(directory_ / name, std::ios::in | std::ios::out | std::ios::binary);
    const size_t step = bytes.size() > 10000 ? 7 : 1;  // every seventh byte of the large files
    for (size_t i = 0; i < bytes.size(); i += step) {
      const auto position = static_cast<std::streamoff>(i);
      file.seekp(position).put(static_cast<char>(bytes[i] ^ (1 << (i * 5 % 8)))).flush();
      ASSERT_FALSE(is_whole()) << name << " byte " << i;
      file.seekp(position).put(bytes[i]).flush();
    }
  }
  EXPECT_TRUE(is_whole());
}

TEST_F(CheckpointDamageTest, TheShareThatIsVerifiedGrowsToTheWhole) {
  int64_t before = 0, whole = 0;
  verify_checkpoint(io_, directory_, [&](int64_t done_bytes, int64_t total_bytes) {
    EXPECT_GT(done_bytes, before);
    EXPECT_LE(done_bytes, total_bytes);
    before = done_bytes;
    whole = total_bytes;
  });
  EXPECT_GT(before, 0);
  EXPECT_EQ(before, whole);
}

TEST_F(CheckpointDamageTest, EveryFlippedBitOfTheManifestIsFound) {
  const std::string& bytes = files_[Manifest::kFileName];
  for (size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string wrong = bytes;
      wrong[i] = static_cast<char>(wrong[i] ^ (1 << bit));
      ASSERT_THROW(parse_manifest(wrong, "manifest"), Error) << i << " bit " << bit;
    }
}

TEST_F(CheckpointDamageTest, EveryTruncationAndEveryLongerFileIsFound) {
  for (const auto& [name, bytes] : files_) {
    for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 300) {
      put(name, bytes.substr(0, size));
      ASSERT_FALSE(is_whole()) << name << " of " << size;
    }
    put(name, bytes + '\0');
    EXPECT_FALSE(is_whole()) << name;
    put(name, bytes);
  }
  EXPECT_TRUE(is_whole());
}

TEST_F(CheckpointDamageTest, FindingsNameFileAndPlace) {
  std::string wrong = files_["rank_00001.h5"];
  wrong[wrong.size() - 3] ^= 1;
  put("rank_00001.h5", wrong);
  expect_finding("rank_00001.h5", "damaged");
  put("rank_00001.h5", files_["rank_00000.h5"]);  // swapped
  expect_finding("rank_00001.h5", "");
  put("rank_00001.h5", "");
  expect_finding("rank_00001.h5", "has 0 bytes");
  put("rank_00001.h5", files_["rank_00001.h5"].substr(0, 100));
  EXPECT_EQ(verify_checkpoint(io_, directory_).at(0).offset, 100);
  std::filesystem::remove(directory_ / "rank_00001.h5");
  expect_finding("rank_00001.h5", "No such file");
  std::filesystem::create_symlink(scratch_ / "elsewhere", directory_ / "rank_00001.h5");
  expect_finding("rank_00001.h5", "not a plain file");
  std::filesystem::remove(directory_ / "rank_00001.h5");
  put("rank_00001.h5", files_["rank_00001.h5"]);
  put("rank_00000.blocks", files_["rank_00001.blocks"]);
  expect_finding("rank_00000.blocks", "hash");
  put("rank_00000.blocks", files_["rank_00000.blocks"]);
  put("rank_00002.h5", "x");
  expect_finding("rank_00002.h5", "does not belong");
  std::filesystem::remove(directory_ / "rank_00002.h5");
  std::filesystem::remove(directory_ / Manifest::kFileName);
  expect_finding(Manifest::kFileName, "No such file");
}

TEST_F(CheckpointDamageTest, WhatCannotBeLookedAtIsNotCalledMissing) {
  FaultIo io(FaultIo::Kind::kError, -1, EACCES);  // at first, all calls succeed
  for (int64_t calls = 0; io.at < calls; ++io.at) {
    for (const CheckpointDamage& damage : verify_checkpoint(io, directory_))
      EXPECT_HAS(damage.what, "Permission denied");
    calls = std::max(calls, io.calls.exchange(0));
  }
}

TEST_F(CheckpointDamageTest, AForgedSizeInASidecarIsRefused) {
  const Manifest manifest = read_manifest(io_, directory_);
  StoredFile file = manifest.files[0];
  std::string& forged = files_["rank_00000.blocks"];
  for (const int64_t bytes : {file.bytes + (int64_t{1} << 30), int64_t{-1}}) {
    std::memcpy(&forged[16], &bytes, sizeof bytes);
    put("rank_00000.blocks", forged);
    StreamHash hash;
    hash.update(forged);
    file.sidecar_hash = hash.hex();
    expect_error([&] { read_sidecar(io_, directory_, file, manifest.arrays_of(0)); }, ExitCode::kStorage,
                 fmt::format("belongs to a file of {} bytes", bytes));
  }
}

TEST_F(CheckpointDamageTest, FilesOfAnotherStepAreFound) {
  SmallRun run(tiny_model(), {1, 2, 1});
  run.save_step(io_, scratch_.path(), 8);
  put("rank_00001.h5", read_bytes(scratch_ / "step_00000008" / "rank_00001.h5"));
  EXPECT_FALSE(is_whole());
  put("rank_00001.blocks", read_bytes(scratch_ / "step_00000008" / "rank_00001.blocks"));
  EXPECT_FALSE(is_whole());
  std::filesystem::remove_all(directory_);
  std::filesystem::rename(scratch_ / "step_00000008", directory_);
  expect_finding(Manifest::kFileName, "of step 8");
}

TEST_F(CheckpointDamageTest, DamageAnywhereInAnArrayIsFoundWhileReading) {
  const std::string& bytes = files_["rank_00000.h5"];
  std::string wrong = bytes;
  for (size_t i = 0; i < bytes.size(); i += 101) {
    wrong[i] ^= 16;
    put("rank_00000.h5", wrong);
    SmallRun run(tiny_model(), {1, 1, 1});
    EXPECT_THROW(run.read(io_, directory_), Error) << i;
    wrong[i] = bytes[i];
  }
}

// Manifests with a right hash and wrong contents must be refused.
class ManifestTest : public testing::Test {
 protected:
  ManifestTest() {
    manifest_.state = state_at(7, tiny_model());
    manifest_.state.best = BestSoFar{"loss", 2.5, 5};
    manifest_.mesh = {1, 2, 2};
    manifest_.units = parameter_table(tiny_model());
    for (const int64_t rank : storing_ranks(manifest_.units, manifest_.mesh))
      manifest_.files.push_back({rank, 5000 + rank, 100, std::string(32, 'a')});
  }
  static std::string sign(std::string body) {
    StreamHash hash;
    hash.update(body);
    return body + ",\n \"hash\": \"xxh3-128:" + hash.hex() + "\"\n}\n";
  }
  static std::string sign(const Json& document) {
    std::string body = document.dump(1);
    body.resize(body.size() - 2);
    return sign(body);
  }
  Json document() const {
    Json json = Json::parse(manifest_text(manifest_));
    json.erase("hash");
    return json;
  }
  void expect_refused(const std::string& text, const std::string& why) const {
    expect_error([&] { parse_manifest(text, "M"); }, ExitCode::kStorage, why);
  }
  void expect_refused(const std::function<void(Json&)>& change, const std::string& why) const {
    Json json = document();
    change(json);
    expect_refused(sign(json), why);
  }
  Manifest manifest_;
};

TEST_F(ManifestTest, ReadsBackEveryValue) {
  const Manifest read = parse_manifest(manifest_text(manifest_), "M");
  EXPECT_EQ(read.state, manifest_.state);
  EXPECT_EQ(read.mesh, manifest_.mesh);
  EXPECT_EQ(read.files, manifest_.files);
  EXPECT_EQ(manifest_text(read), manifest_text(manifest_));
  EXPECT_EQ(sign(document()), manifest_text(manifest_)) << "the test signs as the program does";
}

TEST_F(ManifestTest, NaNAndBadUtf8DoNotPreventASave) {
  manifest_.state.best->value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(parse_manifest(manifest_text(manifest_), "M").state.best);
  manifest_.state.config = "name = \"\xff\"";
  EXPECT_NO_THROW(parse_manifest(manifest_text(manifest_), "M"));
  manifest_.state.tokens = int64_t{1} << 60;
  EXPECT_EQ(parse_manifest(manifest_text(manifest_), "M").state.tokens, int64_t{1} << 60);
}

TEST_F(ManifestTest, RefusesWrongValues) {
  expect_refused([](Json& j) { j["step"] = -1; }, "'step' must be a whole number");
  expect_refused([](Json& j) { j["step"] = 7.0; }, "'step' must be a whole number");
  expect_refused([](Json& j) { j["step"] = "7"; }, "'step' must be a whole number");
  expect_refused([](Json& j) { j["tokens"] = uint64_t{1} << 63; }, "'tokens' must be a whole number");
  expect_refused([](Json& j) { j.erase("cursor"); }, "has no 'cursor'");
  expect_refused([](Json& j) { j["stepp"] = 7; }, "unknown 'stepp'");
  expect_refused([](Json& j) { j["cursor"]["row"] = 7; }, "unknown 'row'");
  expect_refused([](Json& j) { j["validation"]["since_best"] = 1000; },
                 "'since_best' must be a whole number");
  expect_refused([](Json& j) { j["validation"].erase("since_best"); }, "has no 'since_best'");
  expect_refused([](Json& j) { j["format"] = "other"; }, "not of a ripstop checkpoint");
  expect_refused([](Json& j) { j["layout"] = 2; }, "layout version 2");
  expect_refused([](Json& j) { j["mesh"]["fsdp"] = 0; }, "'fsdp' must be a whole number");
  expect_refused([](Json& j) { j["mesh"]["fsdp"] = j["mesh"]["tensor"] = 100000; },
                 "'tensor' must be a whole number");
  expect_refused([](Json& j) { j["mesh"]["fsdp"] = 3; }, "files");
  expect_refused([](Json& j) { j["files"][1]["rank"] = 0; }, "rank 0, one of rank 1");
  expect_refused([](Json& j) { j["files"].erase(0); }, "files");
  expect_refused([](Json& j) { j["files"][0]["bytes"] = -5; }, "'bytes'");
  expect_refused([](Json& j) { j["files"][0]["name"] = "../../etc/passwd"; }, "unknown 'name'");
  expect_refused([](Json& j) { j["model"]["num_attention_heads"] = 3; }, "impossible model");
  const auto parameter = [](Json& j) -> Json& { return j["units"][1]["tensors"][2][0]; };
  expect_refused([&](Json& j) { parameter(j)["name"] = "../wq"; }, "letters, digits");
  expect_refused([&](Json& j) { parameter(j)["name"] = ""; }, "letters, digits");
  expect_refused([&](Json& j) { parameter(j)["name"] = "layers.0.attention.wk.weight"; }, "twice");
  expect_refused([&](Json& j) { parameter(j)["rows"] = int64_t{1} << 60; }, "'rows'");
  expect_refused([&](Json& j) { parameter(j)["rows"] = int64_t{1} << 42; }, "'columns'");
  expect_refused(
      [&](Json& j) { parameter(j)["rows"] = (int64_t{1} << 42) / int64_t{parameter(j)["columns"]}; },
      "has more than 4398046511104 elements");
  expect_refused([&](Json& j) { parameter(j)["cut"] = "diagonal"; }, "'cut' must be none or rows or columns");
  expect_refused([&](Json& j) { parameter(j)["cut"] = "none"; }, "does not fit");
  expect_refused([&](Json& j) { parameter(j)["columns"] = 5; }, "does not fit");
  expect_refused([&](Json& j) { parameter(j)["grain"] = 1000; }, "'grain'");
  expect_refused([](Json& j) { std::swap(j["units"][1]["tensors"][0], j["units"][1]["tensors"][3]); },
                 "first");
  expect_refused([](Json& j) { j["units"][1]["tensors"][0] = Json::array(); }, "without parameters");
  expect_refused([](Json& j) { j["units"] = Json::array(); }, "'units' has 0");
  expect_refused([](Json& j) { j["units"][0]["name"] = j["units"][1]["name"]; }, "twice");
  expect_refused([](Json& j) { j["units"] = 5; }, "'units' must be a list");
  expect_refused([](Json& j) { j["units"][1]["stage"] = 1; }, "'stage' must be");
  expect_refused([](Json& j) { j["units"][1].erase("stage"); }, "'stage'");
  expect_refused([](Json& j) { j["moments"] = "float16"; }, "'moments' must be float32 or bfloat16");
  expect_refused([](Json& j) { j["moments"] = 16; }, "'moments'");
  expect_refused([](Json& j) { j.erase("moments"); }, "'moments'");
}

TEST_F(ManifestTest, HasTheAdaptersAndTheirBase) {
  const LoraConfig lora{
      .rank = 1, .alpha = 2.5, .dropout = 0.1, .rslora = true, .targets = {true, false, false, true}};
  manifest_.state.adapted = {
      .lora = lora, .directory = "models/a", .hash = "01ab", .samples = "2", .dtype = "float32"};
  manifest_.units = stored_table(manifest_.state);
  manifest_.files.clear();
  for (const int64_t rank : storing_ranks(manifest_.units, manifest_.mesh))
    manifest_.files.push_back({rank, 5000 + rank, 100, std::string(32, 'a')});
  const Manifest read = parse_manifest(manifest_text(manifest_), "M");
  EXPECT_EQ(read.state, manifest_.state);
  check_same_parameters(read.units, stored_table(read.state));
  const auto adapters = [](Json& j) -> Json& { return j["adapters"]; };
  expect_refused([&](Json& j) { adapters(j)["rank"] = 0; }, "'rank' must be a whole number");
  expect_refused([&](Json& j) { adapters(j)["rank"] = 1000; }, "has impossible adapters: lora.rank is 1000");
  expect_refused([&](Json& j) { adapters(j)["alpha"] = -1; }, "has impossible adapters: lora.alpha");
  expect_refused([&](Json& j) { adapters(j)["dropout"] = 1; }, "has impossible adapters: lora.dropout");
  expect_refused([&](Json& j) { adapters(j)["targets"] = Json::array(); }, "'targets' has 0");
  expect_refused([&](Json& j) { adapters(j)["targets"][0] = "lm_head"; }, "'targets' must be q_proj or ");
  expect_refused([&](Json& j) { adapters(j)["targets"][0] = 3; }, "'targets' must be q_proj or ");
  expect_refused([&](Json& j) { adapters(j)["bias"] = "all"; }, "unknown 'bias'");
  expect_refused([&](Json& j) { adapters(j)["base"]["step"] = 1; }, "unknown 'step'");
  expect_refused([&](Json& j) { adapters(j)["base"].erase("hash"); }, "has no 'hash'");
  expect_refused([&](Json& j) { adapters(j)["base"].erase("samples"); }, "has no 'samples'");
  expect_refused([&](Json& j) { adapters(j)["base"]["dtype"] = "int8"; }, "has a base of the dtype 'int8'");
  expect_refused([&](Json& j) { j["adapters"] = 5; }, "M: ");
  expect_refused([&](Json& j) { j.erase("adapters"); }, "has no 'adapters'");
}

TEST_F(ManifestTest, RefusesOtherText) {
  expect_refused("", "cut short");
  expect_refused(std::string(1000, '{'), "hash");
  expect_refused(sign(std::string("{\n \"a\": ") + std::string(1'000'000, '[')), "nests deeper");
  expect_refused(sign(std::string("[\n 1")), "JSON");
  std::string twice = document().dump(1);
  twice.resize(twice.size() - 2);
  expect_refused(sign(twice + ",\n \"step\": 8"), "'step' twice");
  expect_refused(std::string(static_cast<size_t>(Manifest::kMostBytes) + 1, ' '), "bytes");
}

TEST_F(ManifestTest, LaterVersions) {
  expect_refused(
      [](Json& j) {
        j["version"] = Manifest::kVersion + 1;
        j["min_reader"] = Manifest::kVersion + 1;
      },
      fmt::format("needs a ripstop that reads version {}", Manifest::kVersion + 1));
  Json later = document();
  later["version"] = Manifest::kVersion + 1;
  later["something_new"] = {1, 2, 3};
  later["cursor"]["something_new"] = 4;
  EXPECT_EQ(parse_manifest(sign(later), "M").state, manifest_.state) << "its min_reader is this version";
}

TEST_F(ManifestTest, EarlierVersionsAreRefusedAndNotDamaged) {
  Json earlier = document();
  earlier["version"] = 5;
  earlier["min_reader"] = 1;
  earlier["written_by"] = "ripstop 0.1.0 (abc)";
  earlier.erase("adapters");
  try {
    parse_manifest(sign(earlier), "M");
    FAIL();
  } catch (const OtherFormat& error) {
    EXPECT_EQ(
        std::string(error.what()),
        fmt::format("M: was written by an older ripstop, in format version 5; this one reads version {} on",
                    Manifest::kVersion));
    EXPECT_EQ(error.hint(), "go on with the version that wrote it: ripstop 0.1.0 (abc)");
  }
}

TEST_F(ManifestTest, StagesOfAPipelineAreRead) {
  EXPECT_EQ(document()["mesh"], Json({{"replicate", 1}, {"pipeline", 1}, {"fsdp", 2}, {"tensor", 2}}));
  manifest_.mesh.pipeline = 2;
  manifest_.units = staged_table(tiny_model(), manifest_.mesh);
  manifest_.files.clear();
  for (const int64_t rank : storing_ranks(manifest_.units, manifest_.mesh))
    manifest_.files.push_back({rank, 5000 + rank, 100, std::string(32, 'a')});
  const Manifest read = parse_manifest(manifest_text(manifest_), "M");
  EXPECT_EQ(read.mesh, manifest_.mesh);
  std::vector<int64_t> stages;
  for (const UnitSpec& unit : read.units) stages.push_back(unit.stage);
  EXPECT_EQ(stages, (std::vector<int64_t>{0, 0, 1}));
  expect_refused([](Json& j) { j["mesh"].erase("pipeline"); }, "pipeline");
  expect_refused([](Json& j) { j["units"][2]["stage"] = 0; }, "lists 7 files, 4 were expected");
  expect_refused([](Json& j) { j["units"][2]["stage"] = 2; }, "'stage' must be");
}

TEST_F(ManifestTest, SizeDoesNotGrowWithRanksTimesTensors) {
  const size_t small = manifest_text(manifest_).size();
  manifest_.mesh = {1, 64, 1};
  manifest_.files.clear();
  for (int64_t rank = 0; rank < 64; ++rank)
    manifest_.files.push_back({rank, 5000, 100, std::string(32, 'a')});
  EXPECT_LT(manifest_text(manifest_).size(), small + 64 * 160);
}

}  // namespace
}  // namespace ripstop
