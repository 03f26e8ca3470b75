// Rows that a vocabulary gets, on every mesh.
#include "train/exchange/read/grown_tables.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/exchange/pretrained_directory.h"
#include "train/exchange/read/open_model.h"
#include "train/exchange/read/weights_reader.h"

namespace ripstop {
namespace {

constexpr int64_t kRows = 16, kColumns = 8;  // of PretrainedDirectory's tables
using Tables = std::map<std::string, std::vector<float>>;

class GrownVocabulary : public ::testing::Test {
 protected:
  void write(bool tied) {
    if (tied) {
      model_.erase("lm_head.weight");
      model_.config["tie_word_embeddings"] = true;
    }
    model_.fill("F32");
    model_.write();
  }
  // All parameters of the model with `rows` token ids, read shard by shard.
  Tables read(ResizeVocabulary how, uint64_t seed, int64_t rows, int64_t tensor, int64_t fsdp) {
    StoredModel stored = open_stored_model(io_, model_.path());
    stored.set_growth({how, seed});
    ModelConfig grown = stored.config();
    grown.vocab_size = rows;
    Tables whole;
    for (const std::vector<UnitSpec> table = parameter_table(grown); const UnitSpec& unit : table)
      for (int64_t t = 0; t < tensor; ++t)
        for (int64_t f = 0; f < fsdp; ++f) {
          const UnitLayout layout(unit, tensor, t, fsdp);
          std::vector<float> shard(static_cast<size_t>(layout.shard_elements()), 7.0F);
          read_weights(io_, stored, f, std::vector<UnitStates>{{.layout = &layout, .master = shard.data()}});
          const int64_t begin = f * layout.shard_elements();
          size_t seen = 0;
          for (const Box& box : layout.boxes(begin, begin + layout.shard_elements())) {
            std::vector<float>& values = whole[box.parameter->name];
            values.resize(static_cast<size_t>(box.parameter->count()));
            for (int64_t r = 0; r < box.rows; ++r)
              for (int64_t c = 0; c < box.columns; ++c, ++seen) {
                float& value = shard[static_cast<size_t>(box.offset + r * box.stride + c - begin)];
                values[static_cast<size_t>((box.row + r) * box.parameter->columns + box.column + c)] =
                    std::exchange(value, 0.0F);
              }
          }
          EXPECT_TRUE(std::ranges::all_of(shard, [](float value) { return value == 0; })) << "padding";
        }
    return whole;
  }
  // Mean and variance of a column of `values`, rows [begin, end).
  static std::pair<double, double> moments(const std::vector<float>& values, int64_t column, int64_t begin,
                                           int64_t end) {
    double sum = 0, squares = 0;
    const auto at = [&](int64_t row) { return double{values[static_cast<size_t>(row * kColumns + column)]}; };
    for (int64_t row = begin; row < end; ++row) sum += at(row);
    const double mean = sum / static_cast<double>(end - begin);
    for (int64_t row = begin; row < end; ++row) squares += (at(row) - mean) * (at(row) - mean);
    return {mean, squares / static_cast<double>(end - begin)};
  }

  Io io_;
  PretrainedDirectory model_;
};

const std::vector<std::string> kBoth = {"tok_embeddings.weight", "output.weight"};

TEST_F(GrownVocabulary, ANewRowIsTheMeanOfTheOthers) {
  write(/*tied=*/false);
  const Tables before = read(ResizeVocabulary::kNone, 0, kRows, 1, 1);
  Tables grown = read(ResizeVocabulary::kMean, 0, kRows + 13, 1, 1);
  for (const std::string& name : kBoth)
    for (int64_t i = 0; i < (kRows + 13) * kColumns; ++i) {
      const float expected = i < kRows * kColumns
                                 ? before.at(name)[static_cast<size_t>(i)]
                                 : static_cast<float>(moments(before.at(name), i % kColumns, 0, kRows).first);
      ASSERT_EQ(grown[name][static_cast<size_t>(i)], expected) << name << " " << i;
    }
  for (const auto& [name, values] : before)
    EXPECT_TRUE(std::ranges::count(kBoth, name) > 0 || grown[name] == values) << name;
}

TEST_F(GrownVocabulary, NormalRowsHaveMeanAndVarianceOfTheOthers) {
  write(/*tied=*/false);
  constexpr int64_t kNew = 20'000;
  const Tables before = read(ResizeVocabulary::kNone, 0, kRows, 1, 1);
  Tables grown = read(ResizeVocabulary::kNormal, 3, kRows + kNew, 1, 1);
  for (const std::string& name : kBoth)
    for (int64_t c = 0; c < kColumns; ++c) {
      const auto [mean, variance] = moments(before.at(name), c, 0, kRows);
      const auto [new_mean, new_variance] = moments(grown[name], c, kRows, kRows + kNew);
      EXPECT_NEAR(new_mean, mean, 0.04 * std::sqrt(variance)) << name << " " << c;
      EXPECT_NEAR(new_variance, variance, 0.05 * variance) << name << " " << c;
    }
  EXPECT_NE(grown[kBoth[0]][kRows * kColumns], grown[kBoth[1]][kRows * kColumns]) << "keyed by the name";
  EXPECT_NE(grown[kBoth[0]][kRows * kColumns], grown[kBoth[0]][(kRows + 1) * kColumns]) << "and the row";
}

TEST_F(GrownVocabulary, RowsAreTheSameOnEveryMesh) {
  for (const bool tied : {false, true}) {
    write(tied);
    for (const ResizeVocabulary how : {ResizeVocabulary::kMean, ResizeVocabulary::kNormal}) {
      const Tables expected = read(how, 3, kRows + 21, 1, 1);
      EXPECT_EQ(expected.contains("output.weight"), !tied);
      for (const auto& [tensor, fsdp] : {std::pair{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 5}, {4, 3}})
        EXPECT_EQ(read(how, 3, kRows + 21, tensor, fsdp), expected) << tensor << " x " << fsdp;
      EXPECT_EQ(read(how, 4, kRows + 21, 1, 1) == expected, how == ResizeVocabulary::kMean);
    }
  }
}

}  // namespace
}  // namespace ripstop
