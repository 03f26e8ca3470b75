#include "train/machine/rates.h"

#include <gtest/gtest.h>

#include "data/files/whole_file.h"
#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

Rates some_rates() {
  Rates rates;
  rates.device = "cpu";
  rates.model = "a processor";
  rates.hosts = {"n1", "n2"};
  rates.ranks_per_node = 4;
  rates.threads = 8;
  rates.memory_bytes_per_second = 1.5e10;
  rates.inside_node = LinkRate{2e-6, 6e9, 0.25};
  rates.kernels = {
      {.kernel = "linear", .dtype = "float32", .rows = 2, .columns = 3, .inner = 4, .per_second = 7e10},
      {.kernel = "rope", .dtype = "bfloat16", .rows = 5, .columns = 6, .per_second = 8e9}};
  return rates;
}

class RatesFile : public ::testing::Test {
 protected:
  // The error of reading a document in which `from` is `to`.
  std::string refusal(const std::string& from, const std::string& to) {
    std::string text = rates_document(some_rates());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_whole_file(path_, text.replace(at, from.size(), to));
    return what_and_hint_of([&] { read_rates(path_); }, ExitCode::kInputData);
  }
  const ScratchDirectory scratch_;
  const std::filesystem::path path_ = scratch_ / "rates.json";
};

TEST_F(RatesFile, IsReadAsItWasWritten) {
  write_whole_file(path_, rates_document(some_rates()));
  const Rates read = read_rates(path_);
  EXPECT_EQ(rates_document(read), rates_document(some_rates()));
  EXPECT_EQ(read.source, "rates.json (n1, n2)");
  EXPECT_EQ(read.kernels[1].inner, 1);
  EXPECT_EQ(read.inside_node->compute_share, 0.25);
  EXPECT_FALSE(read.between_nodes || read.watts_per_rank);
  EXPECT_HAS(rates_document(read), "\"power_watts\": null");
}

TEST_F(RatesFile, OfAnotherVersionOrDamagedIsRefused) {
  EXPECT_HAS(refusal("\"version\": 1", "\"version\": 2"),
             "rates of version 2, this ripstop reads version 1 | measure again: mpirun");
  EXPECT_HAS(refusal("\"cpu\"", "\"tpu\""), "rates of a device 'tpu'");
  EXPECT_HAS(refusal("70000000000.0", "0"), "linear is 0, no rate");
  EXPECT_HAS(refusal("70000000000.0", "-3"), "linear is -3, no rate");
  EXPECT_HAS(refusal("15000000000.0", "1e-400"), "memory_bytes_per_second is 0, no rate");
  EXPECT_HAS(refusal("6000000000.0", "0"), "inside_node.bytes_per_second is 0, no rate");
  EXPECT_HAS(refusal("0.25", "1.25"), "a compute_share of 1.25");
  EXPECT_HAS(refusal("\"threads\": 8", "\"threads\": 0"), "threads");
  EXPECT_HAS(refusal("\"power_watts\": null", "\"power_watts\": 0"), "power_watts is 0, no rate");
  EXPECT_HAS(refusal("\"kernels\"", "\"colonels\""), "kernels");
  EXPECT_NE(refusal("{", "["), "");
  EXPECT_NE(refusal("}", ""), "");
  EXPECT_EQ(refusal("\"power_watts\"", "\"later\": [], \"power_watts\""), "");  // keys may be added
}

TEST(DataSheetRates, AreMarkedAndKnowNoLinkBetweenNodes) {
  const std::optional<Rates> rates = data_sheet_rates("NVIDIA H100 80GB HBM3", DType::kBFloat16);
  ASSERT_TRUE(rates.has_value());
  EXPECT_HAS(rates->source, "data sheet: NVIDIA H100 80GB HBM3 (products at 60% of its peak");
  EXPECT_NEAR(rates->flops_per_second, 0.6 * 989.4e12, 1e6);
  EXPECT_NEAR(rates->memory_bytes_per_second, 0.8 * 3.35e12, 1e3);
  EXPECT_NEAR(rates->inside_node->bytes_per_second, 0.7 * 450e9, 1);
  EXPECT_FALSE(rates->between_nodes);
  EXPECT_FALSE(data_sheet_rates("NVIDIA H100 MIG 1g.10gb", DType::kBFloat16));
  EXPECT_FALSE(data_sheet_rates("a card", DType::kBFloat16));
}

}  // namespace
}  // namespace ripstop
