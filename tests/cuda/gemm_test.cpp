// The descriptions of products for cuBLASLt, and the file of chosen algorithms. Needs no GPU.
#include "model/kernels/cuda/gemm.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <vector>

#include "model/kernels/cuda/gemm_choices.h"
#include "model/kernels/cuda/gemm_plans.h"
#include "tests/data/scratch_directory.h"

namespace ripstop::cuda {
namespace {

using Values = std::vector<float>;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

Values random(int64_t count) {
  static std::mt19937 generator(7);
  Values values(at(count));
  for (float& v : values) v = std::uniform_real_distribution<float>(-1, 1)(generator);
  return values;
}

Tensor matrix(Values& values, int64_t rows, int64_t columns) {
  EXPECT_EQ(static_cast<int64_t>(values.size()), rows * columns);
  return {values.data(), DType::kFloat32, {rows, columns}, Device::cpu()};
}

// Computes what cuBLASLt documents for a description: column-major matrices, see its reference of
// cublasLtMatmul.
void run(const Gemm& g, const Tensor& a, const Tensor& b, const Tensor& d) {
  const float *x = a.as<float>(), *y = b.as<float>();
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < g.k; ++k)
        sum += x[g.transpose_a ? k + i * g.lda : i + k * g.lda] *
               y[g.transpose_b ? j + k * g.ldb : k + j * g.ldb];
      d.as<float>()[i + j * g.ldd] = sum;
    }
}

struct Sizes {
  int64_t rows = 5, in = 3, out = 7;
};

TEST(Gemm, ForwardIsXTimesWTransposed) {
  const Sizes s;
  Values x = random(s.rows * s.in), w = random(s.out * s.in), y(at(s.rows * s.out));
  const Tensor tx = matrix(x, s.rows, s.in), tw = matrix(w, s.out, s.in), ty = matrix(y, s.rows, s.out);
  run(forward_gemm(tx, tw, ty), tw, tx, ty);
  for (int64_t n = 0; n < s.rows; ++n)
    for (int64_t o = 0; o < s.out; ++o) {
      float sum = 0;
      for (int64_t i = 0; i < s.in; ++i) sum += x[at(n * s.in + i)] * w[at(o * s.in + i)];
      EXPECT_NEAR(y[at(n * s.out + o)], sum, 1e-6);
    }
}

TEST(Gemm, RowsOfOperandsMayBeApart) {
  const Sizes s;
  constexpr int64_t kBefore = 2, kWide = 12;
  Values x = random(s.rows * kWide), w = random(s.out * s.in), y(at(s.rows * kWide), 9.0F);
  const Tensor tx = matrix(x, s.rows, kWide).column_range(kBefore, s.in), tw = matrix(w, s.out, s.in),
               ty = matrix(y, s.rows, kWide).column_range(kBefore, s.out);
  const Gemm gemm = forward_gemm(tx, tw, ty);
  EXPECT_TRUE(gemm_name(gemm).ends_with(fmt::format("-l3.{0}.{0}", kWide)));
  run(gemm, tw, tx, ty);
  for (int64_t n = 0; n < s.rows; ++n)
    for (int64_t o = 0; o < kWide; ++o) {
      float sum = 9;
      if (o >= kBefore && o < kBefore + s.out) sum = 0;
      for (int64_t i = 0; i < s.in && sum != 9; ++i)
        sum += x[at(n * kWide + kBefore + i)] * w[at((o - kBefore) * s.in + i)];
      EXPECT_NEAR(y[at(n * kWide + o)], sum, 1e-6);
    }
}

TEST(Gemm, InputGradientIsDyTimesW) {
  const Sizes s;
  Values dy = random(s.rows * s.out), w = random(s.out * s.in), dx(at(s.rows * s.in));
  const Tensor tdy = matrix(dy, s.rows, s.out), tw = matrix(w, s.out, s.in), tdx = matrix(dx, s.rows, s.in);
  run(backward_input_gemm(tdy, tw, tdx), tw, tdy, tdx);
  for (int64_t n = 0; n < s.rows; ++n)
    for (int64_t i = 0; i < s.in; ++i) {
      float sum = 0;
      for (int64_t o = 0; o < s.out; ++o) sum += dy[at(n * s.out + o)] * w[at(o * s.in + i)];
      EXPECT_NEAR(dx[at(n * s.in + i)], sum, 1e-6);
    }
}

TEST(Gemm, WeightGradientIsDyTransposedTimesX) {
  const Sizes s;
  Values dy = random(s.rows * s.out), x = random(s.rows * s.in), dw(at(s.out * s.in));
  const Tensor tdy = matrix(dy, s.rows, s.out), tx = matrix(x, s.rows, s.in), tdw = matrix(dw, s.out, s.in);
  run(backward_weight_gemm(tdy, tx, tdw), tx, tdy, tdw);
  for (int64_t o = 0; o < s.out; ++o)
    for (int64_t i = 0; i < s.in; ++i) {
      float sum = 0;
      for (int64_t n = 0; n < s.rows; ++n) sum += dy[at(n * s.out + o)] * x[at(n * s.in + i)];
      EXPECT_NEAR(dw[at(o * s.in + i)], sum, 1e-6);
    }
}

TEST(Gemm, KnowsHowItsOperandsAreAligned) {
  alignas(256) std::array<std::byte, 1024> memory;
  const auto tensor = [&](int64_t offset) {
    return Tensor{memory.data() + offset, DType::kBFloat16, {1, 8}, Device::cpu()};
  };
  const Gemm gemm = forward_gemm(tensor(16), tensor(2), tensor(512));
  EXPECT_EQ(gemm.alignment_a, 2);
  EXPECT_EQ(gemm.alignment_b, 16);
  EXPECT_EQ(gemm.alignment_d, 256);
}

TEST(Gemm, NamesTellProductsApart) {
  const Gemm gemm{.m = 1, .n = 2, .k = 3, .transpose_a = true, .in = DType::kBFloat16};
  EXPECT_EQ(gemm_name(gemm), "m1-n2-k3-tn-bfloat16-float32-a256.256.256");
  Gemm other = gemm;
  other.transpose_b = true;
  EXPECT_NE(gemm_name(other), gemm_name(gemm));
}

int64_t attribute(const cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t name) {
  cublasLtMatrixLayoutOpaque_t copy = layout;
  int64_t value = 0;
  size_t written = 0;
  EXPECT_EQ(cublasLtMatrixLayoutGetAttribute(&copy, name, &value, sizeof value, &written),
            CUBLAS_STATUS_SUCCESS);
  return value;
}

// Extents as stored, before the transposition.
TEST(Gemm, DescriptorsDescribeWhatIsStored) {
  const Sizes s;
  Values dy = random(s.rows * s.out), x = random(s.rows * s.in), dw(at(s.out * s.in));
  const GemmDescriptors d(
      backward_weight_gemm(matrix(dy, s.rows, s.out), matrix(x, s.rows, s.in), matrix(dw, s.out, s.in)));
  EXPECT_EQ(attribute(d.a, CUBLASLT_MATRIX_LAYOUT_ROWS), s.in);
  EXPECT_EQ(attribute(d.a, CUBLASLT_MATRIX_LAYOUT_COLS), s.rows);
  EXPECT_EQ(attribute(d.b, CUBLASLT_MATRIX_LAYOUT_ROWS), s.out);
  EXPECT_EQ(attribute(d.b, CUBLASLT_MATRIX_LAYOUT_COLS), s.rows);
  EXPECT_EQ(attribute(d.d, CUBLASLT_MATRIX_LAYOUT_ROWS), s.in);
  EXPECT_EQ(attribute(d.d, CUBLASLT_MATRIX_LAYOUT_COLS), s.out);
  EXPECT_EQ(attribute(d.d, CUBLASLT_MATRIX_LAYOUT_LD), s.in);
}

// ---- the file of choices

GemmChoice choice(unsigned char first, double microseconds) {
  GemmChoice c{.microseconds = microseconds};
  c.algorithm[0] = first;
  c.algorithm[63] = 0xfe;
  return c;
}

TEST(GemmChoices, AreFoundByTheNextRun) {
  const ScratchDirectory folder;
  const auto path = folder.path() / "new" / "gemm.txt";
  GemmChoices(path, "GPU, 1").add("a", choice(7, 12.5));
  const GemmChoices again(path, "GPU, 1");
  ASSERT_NE(again.find("a"), nullptr);
  EXPECT_EQ(again.find("a")->algorithm, choice(7, 12.5).algorithm);
  EXPECT_EQ(again.find("a")->microseconds, 12.5);
  EXPECT_EQ(again.find("b"), nullptr);
}

TEST(GemmChoices, OfAnotherVersionDoNotCount) {
  const ScratchDirectory folder;
  const auto path = folder.path() / "gemm.txt";
  GemmChoices(path, "GPU, 1").add("a", choice(1, 1));
  EXPECT_EQ(GemmChoices(path, "GPU, 2").find("a"), nullptr);
  GemmChoices(path, "GPU, 2").add("b", choice(2, 1));
  EXPECT_EQ(GemmChoices(path, "GPU, 1").find("a"), nullptr);
  EXPECT_NE(GemmChoices(path, "GPU, 2").find("b"), nullptr);
}

TEST(GemmChoices, KeepWhatAnotherProcessAdded) {
  const ScratchDirectory folder;
  const auto path = folder.path() / "gemm.txt";
  GemmChoices one(path, "GPU"), two(path, "GPU");
  one.add("a", choice(1, 1));
  two.add("b", choice(2, 2));
  const GemmChoices again(path, "GPU");
  EXPECT_NE(again.find("a"), nullptr);
  EXPECT_NE(again.find("b"), nullptr);
}

TEST(GemmChoices, DamagedLinesAreLeftOut) {
  const ScratchDirectory folder;
  const auto path = folder.path() / "gemm.txt";
  GemmChoices(path, "GPU").add("good", choice(1, 1));
  const std::string hex(128, '0');
  std::ofstream(path, std::ios::app) << "short 00ff 1.0\n"
                                     << "letters " << std::string(128, 'x') << " 1.0\n"
                                     << "untimed " << hex << '\n'
                                     << "negative " << hex << " -1\n"
                                     << "more " << hex << " 1.0 2.0\n"
                                     << "cut " << hex.substr(0, 70);
  const GemmChoices again(path, "GPU");
  EXPECT_NE(again.find("good"), nullptr);
  for (const char* name : {"short", "letters", "untimed", "negative", "more", "cut"})
    EXPECT_EQ(again.find(name), nullptr) << name;
}

TEST(GemmChoices, AreKeptInMemoryWhereNoFileCanBe) {
  for (const auto& path : {std::optional<std::filesystem::path>(),
                           std::optional<std::filesystem::path>("/proc/ripstop/gemm.txt")}) {
    GemmChoices choices(path, "GPU");
    choices.add("a", choice(1, 1));
    EXPECT_NE(choices.find("a"), nullptr);
  }
}

TEST(GemmChoices, FileIsNamedAfterItsOwner) {
  setenv("RIPSTOP_CACHE", "/tmp/somewhere", 1);
  EXPECT_EQ(gemm_choices_path("NVIDIA H100 80GB HBM3, cuBLASLt 130100"),
            "/tmp/somewhere/gemm-NVIDIA-H100-80GB-HBM3-cuBLASLt-130100.txt");
  unsetenv("RIPSTOP_CACHE");
}

}  // namespace
}  // namespace ripstop::cuda
