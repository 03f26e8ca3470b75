#include "parallel/unit_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace ripstop {
namespace {

ModelConfig model(int64_t hidden, int64_t feed_forward, int64_t heads, int64_t kv_heads, int64_t vocabulary,
                  bool tied) {
  ModelConfig config;
  config.hidden_size = hidden;
  config.intermediate_size = feed_forward;
  config.num_hidden_layers = 1;
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  config.vocab_size = vocabulary;
  config.max_position_embeddings = 16;
  config.tie_word_embeddings = tied;
  return config;
}

ModelConfig with_vectors(ModelConfig config, AttentionBias bias) {
  config.attention_bias = bias;
  config.qk_norm = bias != AttentionBias::kQkv;
  return config;
}

const std::vector<ModelConfig> kModels = {with_vectors(model(16, 172, 8, 4, 503, false), AttentionBias::kQkv),
                                          with_vectors(model(96, 250, 12, 4, 9, true), AttentionBias::kQkvo),
                                          model(16, 172, 8, 4, 503, false),
                                          model(24, 172, 4, 4, 3, true),
                                          model(96, 250, 12, 4, 1009, true),
                                          model(8, 1, 4, 1, 32003, false),
                                          model(16, 64, 2, 2, 256, false)};

/// Visits every shard of every rank of the tensor axis.
template <class Visit>
void each_shard(const UnitSpec& unit, int64_t tensor, int64_t fsdp, Visit visit) {
  for (int64_t t = 0; t < tensor; ++t) {
    const UnitLayout layout(unit, tensor, t, fsdp);
    for (int64_t f = 0; f < fsdp; ++f)
      visit(layout, t, f * layout.shard_elements(), (f + 1) * layout.shard_elements());
  }
}

template <class Check>
void each_mesh(Check check) {
  for (const ModelConfig& config : kModels)
    for (const UnitSpec& unit : parameter_table(config))
      for (const int64_t tensor : {1, 2, 3, 4, 8})
        for (const int64_t fsdp : {1, 2, 3, 7, 16}) {
          SCOPED_TRACE(unit.name + " tensor " + std::to_string(tensor) + " fsdp " + std::to_string(fsdp));
          check(unit, tensor, fsdp);
        }
}

TEST(UnitLayout, EveryElementIsInOneShardAndReplicatedOnesOnceOnEachSlice) {
  each_mesh([](const UnitSpec& unit, int64_t tensor, int64_t fsdp) {
    std::map<std::string, std::vector<int>> times;
    for (const PhysicalTensor& physical : unit.tensors)
      for (const ParameterSpec& p : physical.parts) times[p.name].resize(static_cast<size_t>(p.count()));
    each_shard(unit, tensor, fsdp, [&](const UnitLayout& layout, int64_t, int64_t begin, int64_t end) {
      for (const Box& box : layout.boxes(begin, end)) {
        ASSERT_GE(box.row, 0);
        ASSERT_LE(box.row + box.rows, box.parameter->rows);
        ASSERT_LE(box.column + box.columns, box.parameter->columns);
        for (int64_t row = box.row; row < box.row + box.rows; ++row)
          for (int64_t column = box.column; column < box.column + box.columns; ++column)
            ++times[box.parameter->name][static_cast<size_t>(row * box.parameter->columns + column)];
      }
    });
    for (const PhysicalTensor& physical : unit.tensors)
      for (const ParameterSpec& p : physical.parts) {
        const int expected = p.cut == Cut::kNone ? static_cast<int>(tensor) : 1;
        for (const int count : times[p.name]) ASSERT_EQ(count, expected) << p.name;
      }
  });
}

TEST(UnitLayout, BoxesLieInsideTheirShardInOrderAndAreFew) {
  each_mesh([](const UnitSpec& unit, int64_t tensor, int64_t fsdp) {
    each_shard(unit, tensor, fsdp, [](const UnitLayout& layout, int64_t, int64_t begin, int64_t end) {
      std::map<std::string, int> boxes;
      int64_t at = begin;
      for (const Box& box : layout.boxes(begin, end)) {
        ASSERT_FALSE(box.empty());
        ASSERT_LE(++boxes[box.parameter->name], 3);
        ASSERT_GE(box.offset, at);
        ASSERT_GE(box.stride, box.columns);
        at = box.offset + (box.rows - 1) * box.stride + box.columns;
      }
      ASSERT_LE(at, end);
    });
  });
}

TEST(UnitLayout, PaddingIsWhatNoBoxHolds) {
  each_mesh([](const UnitSpec& unit, int64_t tensor, int64_t fsdp) {
    each_shard(unit, tensor, fsdp, [](const UnitLayout& layout, int64_t, int64_t begin, int64_t end) {
      std::vector<float> buffer(static_cast<size_t>(end - begin), 1), expected(buffer.size(), 0);
      for (const Box& box : layout.boxes(begin, end))
        for (int64_t row = 0; row < box.rows; ++row)
          std::fill_n(expected.begin() + (box.offset - begin + row * box.stride), box.columns, 1.0F);
      zero_padding(layout, begin, end, buffer.data(), DType::kFloat32);
      ASSERT_TRUE(buffer == expected);
    });
  });
}

TEST(UnitLayout, BoxesAgreeWithSlices) {
  each_mesh([](const UnitSpec& unit, int64_t tensor, int64_t fsdp) {
    each_shard(unit, tensor, fsdp, [](const UnitLayout& layout, int64_t, int64_t begin, int64_t end) {
      for (const Box& box : layout.boxes(begin, end))
        for (const Box& s : layout.slices())
          if (s.parameter == box.parameter) {
            ASSERT_EQ(box.offset, s.offset + (box.row - s.row) * s.stride + (box.column - s.column));
            ASSERT_EQ(box.stride, s.stride);
          }
    });
  });
}

TEST(UnitLayout, SizesAreEqualOnAllSlicesAndPadded) {
  each_mesh([](const UnitSpec& unit, int64_t tensor, int64_t fsdp) {
    const UnitLayout first(unit, tensor, 0, fsdp);
    EXPECT_EQ(first.elements() % (fsdp * UnitLayout::kGrain), 0);
    EXPECT_EQ(first.shard_elements() * fsdp, first.elements());
    EXPECT_EQ(first.replicated_elements() % UnitLayout::kGrain, 0);
    for (const int64_t offset : first.tensor_offsets()) EXPECT_EQ(offset % UnitLayout::kGrain, 0);
    for (int64_t t = 1; t < tensor; ++t) {
      const UnitLayout other(unit, tensor, t, fsdp);
      EXPECT_EQ(other.elements(), first.elements());
      EXPECT_EQ(other.replicated_elements(), first.replicated_elements());
      EXPECT_EQ(other.tensor_offsets(), first.tensor_offsets());
    }
    for (const Box& s : first.slices())
      EXPECT_EQ(s.offset < first.vector_elements(), s.parameter->vector) << s.parameter->name;
    // Exactly the slices before replicated_elements() are replicated.
    for (const Box& s : first.slices())
      EXPECT_EQ(s.offset < first.replicated_elements(), s.parameter->cut == Cut::kNone) << s.parameter->name;
  });
}

TEST(UnitLayout, AFinerOneIsTheSameBufferInMoreShards) {
  each_mesh([](const UnitSpec& unit, int64_t tensor, int64_t fsdp) {
    const UnitLayout layout(unit, tensor, tensor - 1, fsdp);
    for (const int64_t parts : {1, 3}) {
      const UnitLayout finer = layout.finer(parts), made(unit, tensor, tensor - 1, fsdp * parts);
      EXPECT_EQ(finer.elements(), made.elements());
      EXPECT_EQ(finer.shard_elements(), made.shard_elements());
      EXPECT_GE(finer.elements(), layout.elements());
      EXPECT_EQ(finer.tensor_offsets(), layout.tensor_offsets());
      EXPECT_EQ(finer.replicated_elements(), layout.replicated_elements());
      EXPECT_EQ(finer.slices().size(), layout.slices().size());
    }
  });
}

TEST(UnitLayout, AnyRangeIsCutIntoTheElementsThatItHolds) {
  // Compare with a plain map from element to parameter, for many ranges of a small unit.
  const std::vector<UnitSpec> units = parameter_table(model(8, 3, 2, 1, 5, false));
  for (const UnitSpec& unit : units) {
    const UnitLayout layout(unit, 2, 1, 1);
    std::vector<std::string> owner(static_cast<size_t>(layout.elements()));
    for (const Box& s : layout.slices())
      for (int64_t row = 0; row < s.rows; ++row)
        for (int64_t column = 0; column < s.columns; ++column)
          owner[static_cast<size_t>(s.offset + row * s.stride + column)] = s.parameter->name;
    for (int64_t begin = 0; begin < layout.elements(); begin += 11)
      for (int64_t end = begin; end <= layout.elements(); end += 29) {
        std::vector<std::string> found(owner.size());
        for (const Box& box : layout.boxes(begin, end))
          for (int64_t row = 0; row < box.rows; ++row)
            for (int64_t column = 0; column < box.columns; ++column)
              found[static_cast<size_t>(box.offset + row * box.stride + column)] = box.parameter->name;
        for (int64_t i = 0; i < layout.elements(); ++i)
          ASSERT_EQ(found[static_cast<size_t>(i)], i >= begin && i < end ? owner[static_cast<size_t>(i)] : "")
              << unit.name << " [" << begin << ", " << end << ") at " << i;
      }
  }
}

TEST(UnitLayout, IntersectionIsWhatBothHold) {
  const ParameterSpec p{.name = "p", .rows = 10, .columns = 10};
  const Box a{.parameter = &p, .row = 2, .column = 1, .rows = 5, .columns = 6, .offset = 100, .stride = 6};
  const Box b{.parameter = &p, .row = 4, .column = 0, .rows = 6, .columns = 3, .offset = 7, .stride = 10};
  const Box both = intersection(a, b), other = intersection(b, a);
  EXPECT_EQ(both.row, 4);
  EXPECT_EQ(both.column, 1);
  EXPECT_EQ(both.rows, 3);
  EXPECT_EQ(both.columns, 2);
  EXPECT_EQ(both.offset, 100 + 2 * 6);
  EXPECT_EQ(both.stride, 6);
  EXPECT_EQ(other.offset, 7 + 1);
  EXPECT_EQ(other.stride, 10);
  const Box below{.parameter = &p, .row = 7, .column = 1, .rows = 3, .columns = 6, .offset = 0, .stride = 6};
  EXPECT_TRUE(intersection(a, below).empty());
  const ParameterSpec q{.name = "q", .rows = 10, .columns = 10};
  const Box stranger{.parameter = &q, .rows = 1, .columns = 1};
  EXPECT_THROW(intersection(a, stranger), Error);
}

}  // namespace
}  // namespace ripstop
