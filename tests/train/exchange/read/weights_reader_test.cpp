// Checkpoints of adapters as whole models: base and adapters, merged when they are read.
#include "train/exchange/read/weights_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>

#include "tests/train/checkpoint/checkpoint_model.h"
#include "tests/train/exchange/peft_directory.h"

namespace ripstop {
namespace {

constexpr int64_t kReadStep = 3;

// Adapters of PretrainedDirectory's model, saved on a mesh. In memory the 12 columns of w2 and the 4 rows of
// wk are padded.
class AdaptedModel {
 public:
  explicit AdaptedModel(const MeshSizes& mesh) {
    base_.fill("F32");
    base_.write();
    QuickIo io;
    SmallRun run(model_, mesh, DType::kFloat32, lora_);
    run.fill(kReadStep);
    CheckpointState state = state_at(kReadStep, model_);
    state.adapted = {
        .lora = lora_, .directory = base_.path().string(), .hash = "0", .samples = "2", .dtype = "float32"};
    for (const auto& error : run.save(io, scratch_ / "checkpoints", state))
      EXPECT_FALSE(error) << error->what();
    const std::filesystem::path directory = scratch_ / "checkpoints" / step_directory_name(kReadStep);
    auto base = std::make_unique<StoredModel>(base_.path(), open_pretrained_model(base_.path()));
    merged_ =
        std::make_unique<StoredModel>(Checkpoint{directory, read_manifest(io, directory)}, std::move(base));
  }
  const StoredModel& merged() const { return *merged_; }
  const StoredModel& base() const { return *merged_->base(); }
  const ModelConfig& model() const { return model_; }

  // The sum that the adapters add to one element of `matrix`.
  double added(const ParameterSpec& matrix, int64_t row, int64_t column) const {
    double sum = 0;
    for (int64_t r = 0; r < lora_.rank; ++r)
      sum += double{value_of(adapter_name(matrix.name, 'B'), row, r, 0, kReadStep)} *
             double{value_of(adapter_name(matrix.name, 'A'), r, column, 0, kReadStep)};
    return lora_.scale() * sum;
  }

 private:
  ModelConfig model_ = pretrained_directory_model();
  LoraConfig lora_{.rank = 2, .alpha = 3, .targets = {true, true, true, true, true, true, true}};
  PretrainedDirectory base_;
  ScratchDirectory scratch_;
  std::unique_ptr<StoredModel> merged_;
};

// Reads all shards of a mesh.
void expect_merged(const AdaptedModel& adapted, int64_t fsdp) {
  QuickIo io;
  WeightsReader reader(io, adapted.merged());
  for (const UnitSpec& unit : parameter_table(adapted.model())) {
    const UnitLayout layout(unit, 1, 0, fsdp);
    for (int64_t f = 0; f < fsdp; ++f) {
      const auto elements = static_cast<size_t>(layout.shard_elements());
      std::vector<float> wanted(elements), found(elements, -7.0F);
      WeightsReader(io, adapted.base()).read(f, {.layout = &layout, .master = wanted.data()});
      const int64_t begin = f * layout.shard_elements();
      for (const Box& box : layout.boxes(begin, begin + layout.shard_elements()))
        for (int64_t r = 0; r < box.rows; ++r)
          for (int64_t c = 0; c < box.columns; ++c) {
            float& w = wanted[static_cast<size_t>(box.offset - begin + r * box.stride + c)];
            if (box.parameter->vector || unit.name.find("layers.") != 0) continue;
            w = static_cast<float>(double{w} + adapted.added(*box.parameter, box.row + r, box.column + c));
          }
      reader.read(f, {.layout = &layout, .master = found.data()});
      EXPECT_EQ(found, wanted) << unit.name << " shard " << f << " of " << fsdp;
    }
  }
}

TEST(WeightsReader, MergesAdaptersOfAnyMeshOnAnyMesh) {
  for (const MeshSizes& mesh : {MeshSizes{1, 1, 1}, {1, 3, 1}, {2, 2, 1}}) {
    SCOPED_TRACE(mesh.to_text());
    const AdaptedModel adapted(mesh);
    for (const int64_t fsdp : {1, 2, 3}) expect_merged(adapted, fsdp);
  }
}

TEST(WeightsReader, ReadsShardsInPieces) {
  constexpr int64_t kPiece = 2 * UnitLayout::kGrain;
  const AdaptedModel adapted({1, 2, 1});
  QuickIo io;
  const std::vector<UnitSpec> table = parameter_table(adapted.model());
  int64_t pieces = 0, cut_pieces = 0, shards = 0;
  for (const StoredModel* model : {&adapted.merged(), &adapted.base()})
    for (const int64_t tensor : {1, 2})
      for (const int64_t fsdp : {1, 2, 3})
        for (int64_t f = 0; f < fsdp; ++f) {
          SCOPED_TRACE(fmt::format("tensor {}, shard {} of {}", tensor, f, fsdp));
          std::vector<UnitLayout> layouts;
          for (const UnitSpec& unit : table) layouts.emplace_back(unit, tensor, tensor - 1, fsdp);
          std::vector<const UnitLayout*> borrowed;
          for (const UnitLayout& layout : layouts) borrowed.push_back(&layout);
          std::vector<std::vector<float>> found(layouts.size());
          size_t most = 0;
          read_in_pieces(
              io, *model, borrowed, f,
              [&](size_t unit, int64_t first, std::span<const float> values) {
                ASSERT_EQ(first, std::ssize(found[unit])) << "in order, and all of it";
                found[unit].insert(found[unit].end(), values.begin(), values.end());
                most = std::max(most, values.size());
                pieces += 1;
                cut_pieces += values.size() < static_cast<size_t>(kPiece) ? 1 : 0;
              },
              kPiece);
          EXPECT_LE(most, static_cast<size_t>(kPiece));
          for (size_t u = 0; u < layouts.size(); ++u) {
            std::vector<float> wanted(static_cast<size_t>(layouts[u].shard_elements()), -7.0F);
            WeightsReader(io, *model).read(f, {.layout = &layouts[u], .master = wanted.data()});
            EXPECT_EQ(found[u], wanted) << table[u].name;
            shards += 1;
          }
        }
  EXPECT_GT(pieces, shards);
  EXPECT_GT(cut_pieces, 0) << "of shards that end where no piece does";
}

TEST(WeightsReader, GivesTheAdaptersThemselvesToo) {
  const AdaptedModel adapted({1, 2, 1});
  QuickIo io;
  WeightsReader reader(io, adapted.merged());
  const std::vector<UnitSpec> table = stored_table(adapted.merged().state());
  const UnitLayout layout(table[1], 1, 0, 1);
  std::vector<float> found(static_cast<size_t>(layout.elements()), -7.0F);
  reader.read(0, {.layout = &layout, .master = found.data()});
  for (const Box& box : layout.slices())
    for (int64_t r = 0; r < box.rows; ++r)
      for (int64_t c = 0; c < box.columns; ++c)
        ASSERT_EQ(found[static_cast<size_t>(box.offset + r * box.stride + c)],
                  value_of(box.parameter->name, r, c, 0, kReadStep))
            << box.parameter->name;
}

}  // namespace
}  // namespace ripstop
