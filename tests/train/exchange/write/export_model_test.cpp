// Exports of checkpoints of many meshes, by many ranks, on file systems that fail.
#include "train/exchange/write/export_model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "model/device/dtype.h"
#include "tests/data/fault_io.h"
#include "tests/expect_has.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "train/exchange/hugging_face/generation_file.h"
#include "train/exchange/hugging_face/pretrained_model.h"
#include "train/exchange/hugging_face/safetensors.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kStep = 3;

// A run without a tokenizer, of weights by rule.
class SavedRun {
 public:
  SavedRun(const ModelConfig& model, const MeshSizes& mesh) {
    QuickIo io;
    SmallRun(model, mesh).save_step(io, scratch_ / "checkpoints", kStep);
    checkpoint_.directory = scratch_ / "checkpoints" / step_directory_name(kStep);
    checkpoint_.manifest = read_manifest(io, checkpoint_.directory);
    trained_.emplace(TrainedModel{StoredModel(checkpoint_), scratch_.path(), {}});
  }
  const fs::path& path() const { return scratch_.path(); }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  TrainedModel& trained() { return *trained_; }
  const TrainedModel& trained() const { return *trained_; }

 private:
  ScratchDirectory scratch_;
  Checkpoint checkpoint_;
  std::optional<TrainedModel> trained_;
};

// The error of each of `ranks` ranks that export together.
std::vector<std::optional<Error>> run_export(Io& io, const SavedRun& run, const fs::path& output,
                                             const ExportOptions& options = {}, int64_t ranks = 1,
                                             ExportReport* report = nullptr) {
  return SimulatedRanks(ranks).run([&](Communicator& world) {
    const ExportReport done =
        export_model(io, world, run.trained(), output, options, [](const char*, int64_t, int64_t) {});
    if (report != nullptr && world.rank() == 0) *report = done;
  });
}

void expect_exported(const SavedRun& run, const fs::path& output, const ExportOptions& options = {},
                     int64_t ranks = 1, ExportReport* report = nullptr) {
  QuickIo io;
  for (const auto& error : run_export(io, run, output, options, ranks, report))
    ASSERT_FALSE(error) << error->what();
}

std::map<std::string, std::string> files_of(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory))
    files.emplace(entry.path().filename().string(), read_bytes(entry.path()));
  return files;
}

std::map<std::string, std::string> weights_of(const fs::path& directory) {
  auto files = files_of(directory);
  files.erase("README.md");  // names the mesh
  return files;
}

// Reads every element back, by our own reader of such directories.
void expect_weights(const fs::path& directory, const ModelConfig& model, ExportDType dtype) {
  const PretrainedModel read = open_pretrained_model(directory);
  EXPECT_TRUE(read.ignored.empty() && !read.tied_copy);
  for (const UnitSpec& unit : parameter_table(model))
    for (const PhysicalTensor& physical : unit.tensors)
      for (const ParameterSpec& p : physical.parts) {
        const StoredTensor& tensor = read.tensors.at(p.name);
        ASSERT_EQ(tensor.dtype, safetensors_dtype(dtype));
        std::vector<char> bytes(static_cast<size_t>(tensor.bytes));
        read.files[tensor.file].read_at(tensor.begin, bytes.data(), tensor.bytes);
        const bool turns =
            p.name.find(".wq.") != std::string::npos || p.name.find(".wk.") != std::string::npos;
        const int64_t size = element_bytes(dtype);
        for (int64_t row = 0; row < p.rows; ++row)
          for (int64_t column = 0; column < p.columns; ++column) {
            const float value = value_of(p.name, row, column, 0, kStep);
            char expected[4] = {};
            ASSERT_FALSE(convert(&value, 1, dtype, expected));
            const int64_t stored = turns ? pretrained_row(row, model.head_size()) : row;
            ASSERT_EQ(std::memcmp(bytes.data() + (stored * p.columns + column) * size, expected,
                                  static_cast<size_t>(size)),
                      0)
                << p.name << " row " << row << " column " << column;
          }
      }
}

TEST(ExportModel, EveryElementIsAtItsPlaceInEveryType) {
  for (const bool tied : {false, true})
    for (const ExportDType dtype : {ExportDType::kFloat32, ExportDType::kBFloat16, ExportDType::kFloat16}) {
      SCOPED_TRACE(std::string(to_string(dtype)));
      const ScratchDirectory scratch;
      const SavedRun run(small_sizes(tied), {1, 1, 1});
      ExportReport report;
      expect_exported(run, scratch / "out", {.dtype = dtype}, 1, &report);
      expect_weights(scratch / "out", small_sizes(tied), dtype);
      ModelConfig expected = small_sizes(tied);
      expected.initializer_range = 0.25;  // 1 / sqrt(16), which 0 stands for
      expected.head_dim = expected.head_size();
      EXPECT_EQ(read_pretrained_config(scratch / "out"), expected);
      EXPECT_EQ(report.tensors, tied ? 20 : 21);
      for (const CheckedFile& file : report.files) {
        const std::string bytes = read_bytes(scratch / "out" / file.name);
        EXPECT_EQ(std::ssize(bytes), file.bytes) << file.name;
        StreamHash hash;
        hash.update(bytes);
        EXPECT_EQ(hash.hex(), file.hash) << file.name;
      }
      EXPECT_EQ(report.files.size(), files_of(scratch / "out").size());
    }
}

TEST(ExportModel, TheBytesDoNotDependOnMeshOrRanks) {
  const ExportOptions several{.dtype = ExportDType::kBFloat16, .most_file_bytes = 20000};
  const ScratchDirectory scratch;
  expect_exported(SavedRun(small_sizes(), {1, 1, 1}), scratch / "one", several);
  const auto expected = weights_of(scratch / "one");
  EXPECT_GT(expected.size(), 4u);
  for (const MeshSizes& mesh : {MeshSizes{1, 4, 1}, {1, 1, 4}, {1, 2, 2}, {2, 1, 1}, {2, 3, 2}}) {
    const SavedRun run(small_sizes(), mesh);
    for (const int64_t ranks : {1, 3, 8}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", mesh.to_text(), ranks));
      const fs::path output =
          scratch / fmt::format("{}{}{}-{}", mesh.replicate, mesh.fsdp, mesh.tensor, ranks);
      expect_exported(run, output, several, ranks);
      EXPECT_EQ(weights_of(output), expected);
    }
  }
  expect_weights(scratch / "one", small_sizes(), ExportDType::kBFloat16);
}

// A unit that is cut in the middle of rows, of a pair of rows that change places, and of a head.
TEST(ExportModel, UnitsOfSeveralParts) {
  ModelConfig model = tiny_model();
  model.hidden_size = 1536;
  model.intermediate_size = 24;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  const ScratchDirectory scratch;
  const SavedRun run(model, {1, 2, 2});
  expect_exported(run, scratch / "out", {.dtype = ExportDType::kFloat32}, 2);
  expect_weights(scratch / "out", model, ExportDType::kFloat32);
}

TEST(ExportModel, ANumberThatDoesNotFitIsRefused) {
  QuickIo io;
  SmallRun small(tiny_model(), {1, 1, 1});
  const ScratchDirectory scratch;
  small.fill(kStep);
  // The first unit is the embedding; its first state the weights.
  *small.ranks()[0].units()[0].master = 1e6f;
  for (const auto& error : small.save(io, scratch / "checkpoints", state_at(kStep, tiny_model())))
    ASSERT_FALSE(error);
  const fs::path directory = scratch / "checkpoints" / step_directory_name(kStep);
  const TrainedModel trained{StoredModel({directory, read_manifest(io, directory)}), scratch.path(), {}};
  const auto thrown = SimulatedRanks(2).run([&](Communicator& world) {
    export_model(io, world, trained, scratch / "out", {.dtype = ExportDType::kFloat16},
                 [](const char*, int64_t, int64_t) {});
  });
  ASSERT_TRUE(thrown[0] && thrown[1]);
  EXPECT_EQ(thrown[0]->code(), ExitCode::kInputData);
  EXPECT_HAS(std::string(thrown[0]->what()),
             "model.embed_tokens.weight has the weight 1000000, which float16");
  EXPECT_FALSE(fs::exists(scratch / "out"));
}

// Nothing but the run is left, or all of the export.
void expect_nothing_else(const fs::path& parent) {
  EXPECT_TRUE(fs::is_empty(parent)) << fs::directory_iterator(parent)->path();
}

int64_t calls_of_an_export(const SavedRun& run, int64_t ranks) {
  const ScratchDirectory scratch;
  FaultIo io;
  EXPECT_FALSE(run_export(io, run, scratch / "out", {}, ranks)[0]);
  EXPECT_GT(io.calls, 20);
  return io.calls;
}

TEST(ExportModel, OneErrorAtAnyCallLeavesNothing) {
  const SavedRun run(tiny_model(), {1, 2, 1});
  for (const int64_t ranks : {1, 2}) {
    const int64_t calls = calls_of_an_export(run, ranks);
    int64_t failed = 0;
    for (int64_t at = 0; at < calls; ++at) {
      SCOPED_TRACE(fmt::format("call {} of {}, {} ranks", at, calls, ranks));
      const ScratchDirectory scratch;
      FaultIo io(FaultIo::Kind::kError, at, ENOSPC);
      const auto thrown = run_export(io, run, scratch / "out", {}, ranks);
      for (const auto& error : thrown) {
        ASSERT_EQ(error.has_value(), thrown[0].has_value());
        if (error) {
          EXPECT_EQ(error->code(), ExitCode::kStorage) << error->what();
        }
      }
      if (thrown[0]) {
        ++failed;
        expect_nothing_else(scratch.path());
      } else {
        expect_weights(scratch / "out", tiny_model(), ExportDType::kBFloat16);
      }
    }
    EXPECT_GT(failed, calls / 2);
  }
}

TEST(ExportModel, InterruptedAndShortCallsAreContinued) {
  const SavedRun run(tiny_model(), {1, 1, 2});
  const int64_t calls = calls_of_an_export(run, 1);
  for (const FaultIo::Kind kind : {FaultIo::Kind::kInterrupted, FaultIo::Kind::kShort})
    for (int64_t at = 0; at < calls; ++at) {
      const ScratchDirectory scratch;
      FaultIo io(kind, at);
      EXPECT_FALSE(run_export(io, run, scratch / "out")[0]) << at;
      expect_weights(scratch / "out", tiny_model(), ExportDType::kBFloat16);
    }
}

TEST(ExportModel, AWrongBitOnTheDiskIsFound) {
  const SavedRun run(tiny_model(), {1, 1, 1});
  const int64_t calls = calls_of_an_export(run, 2);
  // Alone, without hashes of whole files, nothing is read at the end.
  for (const int64_t ranks : {1, 2}) {
    const ExportOptions options{.hashes_files = ranks > 1};
    int64_t flips = 0, refused = 0;
    for (int64_t at = 0; at < calls; ++at) {
      const ScratchDirectory scratch;
      FaultIo io(FaultIo::Kind::kFlip, at);
      const auto thrown = run_export(io, run, scratch / "out", options, ranks);
      flips += io.flips;
      if (!thrown[0]) continue;
      ++refused;
      EXPECT_HAS(std::string(thrown[0]->what()), "are not what was written");
      expect_nothing_else(scratch.path());
    }
    // The byte that gives the file its size is written again, and OWNER goes away.
    EXPECT_EQ(refused, flips - 2) << ranks;
    // Small files, header and tensors are some 14 writes. Threads make their calls in another order each
    // time, so that some are met twice and others not at all.
    EXPECT_GE(refused, 8);
  }
}

// Until OWNER is written, nothing says whose a directory is.
constexpr int64_t kCallsBeforeTheOwner = 20;

TEST(ExportModel, KilledAtAnyCallItIsWholeOrAbsent) {
  const SavedRun run(tiny_model(), {1, 1, 1});
  const int64_t calls = calls_of_an_export(run, 1);
  const ScratchDirectory once;
  expect_exported(run, once / "out");
  const auto whole = files_of(once / "out");
  int64_t committed = 0;
  for (int64_t at = 0; at < calls; at += at < calls - 20 ? 3 : 1) {
    SCOPED_TRACE(at);
    const ScratchDirectory scratch;
    FaultIo io(FaultIo::Kind::kKill, at);
    ASSERT_FALSE(survives([&] { (void)run_export(io, run, scratch / "out"); }));
    if (fs::exists(scratch / "out")) {
      ++committed;
      EXPECT_EQ(files_of(scratch / "out"), whole);
      expect_weights(scratch / "out", tiny_model(), ExportDType::kBFloat16);
      continue;
    }
    // The next export of the same name says what it removes.
    std::vector<std::string> notes;
    expect_exported(run, scratch / "out", {.note = [&](const std::string& text) { notes.push_back(text); }});
    const bool left = std::ranges::any_of(notes, [](const std::string& note) {
      return note.find("was killed before it was done") != std::string::npos;
    });
    EXPECT_TRUE(left || at < kCallsBeforeTheOwner);
    expect_weights(scratch / "out", tiny_model(), ExportDType::kBFloat16);
    if (left) {
      EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1);
    }
  }
  EXPECT_GT(committed, 0) << "killed after the rename";
}

TEST(ExportModel, WhatIsThereIsNotReplaced) {
  const SavedRun run(tiny_model(), {1, 1, 1});
  const ScratchDirectory scratch;
  QuickIo io;
  write_bytes(scratch / "file", "x");
  fs::create_directory(scratch / "full");
  write_bytes(scratch / "full" / "x", "x");
  for (const char* name : {"file", "full"}) {
    const auto thrown = run_export(io, run, scratch / name);
    ASSERT_TRUE(thrown[0]) << name;
    EXPECT_EQ(thrown[0]->code(), ExitCode::kUsage);
    EXPECT_HAS(std::string(thrown[0]->what()), "exists already");
  }
  fs::create_directory(scratch / "empty");
  expect_exported(run, scratch / "empty");
  expect_exported(run, scratch / "new" / "folder" / "out");
}

// A disk with little room.
class SmallDisk : public QuickIo {
 public:
  int free_bytes(const fs::path&, int64_t& bytes) override {
    bytes = 100;
    return 0;
  }
};

TEST(ExportModel, RoomIsLookedForFirst) {
  const SavedRun run(tiny_model(), {1, 1, 1});
  const ScratchDirectory scratch;
  SmallDisk io;
  const auto thrown = run_export(io, run, scratch / "out", {}, 2);
  ASSERT_TRUE(thrown[0] && thrown[1]);
  EXPECT_EQ(thrown[0]->code(), ExitCode::kStorage);
  EXPECT_HAS(std::string(thrown[0]->what()), "100 B free, the export needs");
  expect_nothing_else(scratch.path());
}

// The data set may be gone, or another one may lie there.
TEST(ExportModel, TheKindOfTheDataIsThatOfTheRunsLog) {
  for (const char* kind : {"text", "summary"}) {
    SavedRun run(tiny_model(), {1, 1, 1});
    write_bytes(run.path() / "metrics.jsonl",
                fmt::format("{{\"event\": \"start\", \"step\": 0, \"data\": {{\"kind\": \"{}\"}}}}\n"
                            "{{\"event\": \"step\", \"step\": 1}}\n",
                            kind));
    write_bytes(run.path() / "data" / "prepare.json", R"({"arguments": {"source": "text"}})");
    write_bytes(run.path() / "prompt_template.txt", "{document} TL;DR:");
    run.trained().config.data.directory = (run.path() / "data").string();
    const ScratchDirectory scratch;
    QuickIo io;
    const auto self = make_self_communicator("test");
    export_model(io, *self, run.trained(), scratch / "out", {}, [](const char*, int64_t, int64_t) {});
    // Running text has no prompt.
    EXPECT_EQ(std::filesystem::exists(scratch / "out" / kPromptFile), kind == std::string("summary"));
  }
}

TEST(ExportModel, DamageOfTheCheckpointIsNamed) {
  const SavedRun run(tiny_model(), {1, 1, 1});
  const fs::path file = run.checkpoint().directory / rank_file_name(0);
  std::string bytes = read_bytes(file);
  // The master weights come first; the last bytes are moments.
  bytes[bytes.size() / 4] ^= 1;
  write_bytes(file, bytes);
  const ScratchDirectory scratch;
  QuickIo io;
  const auto thrown = run_export(io, run, scratch / "out");
  ASSERT_TRUE(thrown[0]);
  EXPECT_EQ(thrown[0]->code(), ExitCode::kStorage);
  EXPECT_HAS(thrown[0]->hint(), "ripstop checkpoint verify");
  expect_nothing_else(scratch.path());
}

}  // namespace
}  // namespace ripstop
