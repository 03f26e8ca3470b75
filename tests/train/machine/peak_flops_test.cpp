#include "train/machine/peak_flops.h"

#include <gtest/gtest.h>
#include <time.h>

#include <vector>

#include "model/kernels/cpu/processor.h"
#include "train/machine/machine.h"

namespace ripstop {
namespace {

// 0 if the peak is not known.
double teraflops(const std::string& name, DType compute) {
  return data_sheet_flops(name, compute).value_or(0) / 1e12;
}

TEST(PeakFlops, DataSheetsByDeviceNameAndDtype) {
  EXPECT_DOUBLE_EQ(teraflops("NVIDIA A100-SXM4-80GB", DType::kBFloat16), 312);
  EXPECT_DOUBLE_EQ(teraflops("NVIDIA A100 80GB PCIe", DType::kFloat32), 19.5) << "no TF32";
  EXPECT_DOUBLE_EQ(teraflops("NVIDIA H100 80GB HBM3", DType::kBFloat16), 989.4);
  EXPECT_DOUBLE_EQ(teraflops("NVIDIA H100 PCIe", DType::kBFloat16), 756);
  EXPECT_DOUBLE_EQ(teraflops("NVIDIA H100 NVL", DType::kBFloat16), 835.5);
  EXPECT_DOUBLE_EQ(teraflops("NVIDIA H200", DType::kFloat32), 66.9);
  EXPECT_DOUBLE_EQ(teraflops("NVIDIA B200", DType::kBFloat16), 2250);
  EXPECT_DOUBLE_EQ(teraflops("NVIDIA L40S", DType::kBFloat16), 362);
  EXPECT_DOUBLE_EQ(teraflops("NVIDIA GeForce RTX 4090", DType::kBFloat16), 165.2);
  EXPECT_DOUBLE_EQ(teraflops("NVIDIA RTX 6000 Ada Generation", DType::kFloat32), 91.1);
}

TEST(PeakFlops, WhatTheSheetsDoNotSayIsNotKnown) {
  EXPECT_FALSE(data_sheet_flops("Tesla V100-SXM2-16GB", DType::kFloat32)) << "ripstop does not run on it";
  EXPECT_FALSE(data_sheet_flops("NVIDIA A100-SXM4-40GB MIG 1g.5gb", DType::kBFloat16)) << "a part of one";
  EXPECT_FALSE(data_sheet_flops("NVIDIA GeForce RTX 4090 Laptop GPU", DType::kBFloat16));
  EXPECT_FALSE(data_sheet_flops("NVIDIA GeForce RTX 4090 D", DType::kBFloat16));
  EXPECT_FALSE(data_sheet_flops("NVIDIA A10G", DType::kBFloat16)) << "A10 is another one";
  EXPECT_FALSE(data_sheet_flops("NVIDIA H2000", DType::kBFloat16));
  EXPECT_FALSE(data_sheet_flops("", DType::kFloat32));
}

std::vector<PeakRound> rounds_of(const std::vector<double>& seconds, double share = 1) {
  std::vector<PeakRound> rounds;
  for (const double each : seconds) rounds.push_back({.seconds = each, .cpu_share = share});
  return rounds;
}

TEST(PeakFlops, TheFastestRoundMustBeRepeated) {
  EXPECT_FALSE(fastest_round({}));
  EXPECT_FALSE(fastest_round(rounds_of({0.010, 0.010})));
  EXPECT_EQ(fastest_round(rounds_of({0.010, 0.0102, 0.0101})), 0.010);
  // Other programs take processor time for a while, then end.
  EXPECT_FALSE(fastest_round(rounds_of({0.019, 0.025, 0.021, 0.010, 0.0101})));
  EXPECT_EQ(fastest_round(rounds_of({0.019, 0.025, 0.021, 0.010, 0.0101, 0.0102})), 0.010);
  // No two rounds agree.
  std::vector<double> wild;
  for (int64_t i = 0; i < kMostRounds; ++i) wild.push_back(0.010 * (1 + 0.05 * static_cast<double>(i)));
  EXPECT_FALSE(fastest_round(rounds_of(wild)));
}

// A program that never rests slows all rounds alike. The CPU time of the threads shows it.
TEST(PeakFlops, RoundsOnABusyProcessorDoNotCount) {
  EXPECT_FALSE(fastest_round(rounds_of({0.020, 0.020, 0.020, 0.020}, 0.5)));
  std::vector<PeakRound> rounds = rounds_of({0.020, 0.020, 0.020}, 0.5);
  rounds.push_back({.seconds = 0.010, .cpu_share = 0.99});
  EXPECT_FALSE(fastest_round(rounds));
  rounds.push_back({.seconds = 0.010, .cpu_share = 0.86});
  rounds.push_back({.seconds = 0.0103, .cpu_share = 1.0});
  EXPECT_EQ(fastest_round(rounds), 0.010);
}

TEST(PeakFlops, ACpuIsMeasured) {
  MpiWorld world;
  std::optional<PeakFlops> peak;
  const double began = clock_seconds(CLOCK_MONOTONIC), worked = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
  for (int attempt = 0; attempt < 50 && !peak; ++attempt)
    peak = find_peak_flops(world, Device::cpu(), DType::kFloat32);
  const double cpu_seconds = clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - worked;
  if (!peak) {  // for twenty seconds other programs kept the processors busy
    EXPECT_LT(cpu_seconds,
              0.9 * (clock_seconds(CLOCK_MONOTONIC) - began) * static_cast<double>(cpu_threads()));
    return;
  }
  EXPECT_GT(peak->per_second, 1e8);
  EXPECT_LT(peak->per_second, 1e15);
  EXPECT_EQ(peak->source.rfind("measured", 0), 0U) << peak->source;
}

}  // namespace
}  // namespace ripstop
