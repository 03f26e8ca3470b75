#include "train/machine/energy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cmath>

#include "data/text/json_struct.h"
#include "tests/data/fault_io.h"
#include "tests/expect_has.h"
#include "tests/train/machine/powercap_tree.h"

namespace ripstop {
namespace {

using std::filesystem::path;
constexpr std::chrono::hours kNever{1};  // the meter's thread reads nothing

class Rapl : public testing::Test {
 protected:
  Rapl() {
    tree_.add("intel-rapl:0", "package-0", 1'000'000);
    tree_.add("intel-rapl:0:0", "core");
    tree_.add("intel-rapl:0:1", "uncore");
    tree_.add("intel-rapl:0:2", "dram", 5);
    tree_.add("intel-rapl:1", "package-1-die-0", PowercapTree::kRange - 1'000'000);
    tree_.add("intel-rapl:1:0", "dram");
  }
  EnergyMeter meter() { return EnergyMeter(io_, tree_.path(), {}, kNever); }
  // Whether the meter reads nothing, and tells why.
  void expect_unknown(EnergyMeter& meter, const std::string& reason) {
    EXPECT_TRUE(std::isnan(meter.read().host));
    EXPECT_EQ(meter.read().gpus, 0);
    EXPECT_TRUE(meter.counters().empty());
    EXPECT_HAS(meter.problem(), reason);
  }

  Io io_;
  ScratchDirectory scratch_;
  PowercapTree tree_{scratch_.path()};
};

TEST_F(Rapl, EachPartOfTheNodeCountsOnce) {
  tree_.add("intel-rapl:2", "psys");
  tree_.add("intel-rapl-mmio:0", "package-0");  // the same package by another path
  EnergyMeter meter = this->meter();
  EXPECT_EQ(meter.read().total(), 0) << "since the construction";
  EXPECT_EQ(meter.counters(), (std::vector<std::string>{"package-0", "package-0 dram", "package-1-die-0",
                                                        "package-1-die-0 dram"}));
  double joules = 0.5;
  for (const char* zone : {"intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:0:2",
                           "intel-rapl:1", "intel-rapl:1:0", "intel-rapl:2", "intel-rapl-mmio:0"})
    tree_.take(zone, joules *= 2);
  EXPECT_EQ(meter.read().host, 1 + 8 + 16 + 32);
  EXPECT_EQ(meter.problem(), "");
}

TEST_F(Rapl, CountersWrapAround) {
  EnergyMeter meter = this->meter();
  double taken = 0;
  for (int i = 0; i < 10; ++i) {
    tree_.take("intel-rapl:1", 200'000);
    taken += 200'000;
    EXPECT_NEAR(meter.read().host, taken, 1e-3) << "ranges are a unit, 61 uJ, less than the counters' period";
  }
}

TEST_F(Rapl, AThreadReadsBesidesTheProgram) {
  class CountingIo : public Io {
   public:
    std::atomic<int64_t> opened = 0;
    int open(const path& file, int flags) override {
      ++opened;
      return Io::open(file, flags);
    }
  } io;
  EnergyMeter meter(io, tree_.path(), {}, std::chrono::milliseconds(1));
  for (int i = 0; i < 3; ++i) {
    tree_.take("intel-rapl:1", 200'000);  // without a reading after each, a period would be lost
    const int64_t before = io.opened;
    while (io.opened < before + 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_NEAR(meter.read().host, 600'000, 1e-3);
}

TEST_F(Rapl, OtherRanksReadNothing) {
  EnergyMeter meter(io_, tree_.path(), {.host = false, .gpus = {}}, kNever);
  tree_.take("intel-rapl:0", 5);
  EXPECT_EQ(meter.read().total(), 0) << "a part of the sum";
  EXPECT_TRUE(meter.counters().empty());
  EXPECT_EQ(meter.problem(), "");
}

// Users may not open energy_uj since Linux 5.10, root may.
TEST_F(Rapl, WithoutTheRightEnergyIsUnknown) {
  class User : public Io {
    int open(const path& file, int flags) override {
      if (file.filename() != "energy_uj" || file.parent_path().filename() != "intel-rapl:1:0")
        return Io::open(file, flags);
      errno = EACCES;
      return -1;
    }
  } user;
  EnergyMeter meter(user, tree_.path(), {}, kNever);
  expect_unknown(meter,
                 tree_.file("intel-rapl:1:0", "energy_uj").string() +
                     ": Permission denied (root alone may read it, unless an administrator allows it)");
}

TEST_F(Rapl, WithoutCountersEnergyIsUnknown) {
  EnergyMeter nowhere(io_, scratch_ / "none", {}, kNever);
  expect_unknown(nowhere, (scratch_ / "none").string() + ": No such file or directory");
  PowercapTree empty(scratch_ / "empty");  // as in most virtual machines
  EnergyMeter in_empty(io_, empty.path(), {}, kNever);
  expect_unknown(in_empty, "has no counter of a processor");
}

TEST_F(Rapl, ACounterThatDisappearsStaysUnknown) {
  EnergyMeter meter = this->meter();
  tree_.take("intel-rapl:0", 7);
  EXPECT_EQ(meter.read().host, 7);
  std::filesystem::rename(tree_.path() / "intel-rapl:1", tree_.path() / "away");
  expect_unknown(meter, "intel-rapl:1/energy_uj: No such file or directory");
  std::filesystem::rename(tree_.path() / "away", tree_.path() / "intel-rapl:1");
  expect_unknown(meter, "No such file");  // what it counted meanwhile may have wrapped around
}

TEST_F(Rapl, WhatIsNoNumberIsNoEnergy) {
  for (const char* name : {"energy_uj", "max_energy_range_uj"})
    for (const std::string text :
         {"", "\n", "abc\n", "-5\n", "1 2\n", "0x10\n", "1e3\n", "9223372036854775808\n"}) {
      const std::string before = read_bytes(tree_.file("intel-rapl:1", name));
      tree_.write("intel-rapl:1", name, text);
      EnergyMeter meter = this->meter();
      expect_unknown(meter,
                     std::string(name) + ": has '" + text.substr(0, text.find('\n')) + "' where a number");
      tree_.write("intel-rapl:1", name, before);
    }
  tree_.write("intel-rapl:1", "max_energy_range_uj", "1000\n");
  EnergyMeter small = this->meter();
  expect_unknown(small, "energy_uj: 262142328850 is above max_energy_range_uj, 1000");
  tree_.write("intel-rapl:1", "name", "");
  EnergyMeter nameless = this->meter();
  expect_unknown(nameless, "intel-rapl:1/name: is empty");
  std::filesystem::remove(tree_.file("intel-rapl:0", "energy_uj"));
  std::filesystem::create_directory(tree_.file("intel-rapl:0", "energy_uj"));
  tree_.write("intel-rapl:1", "name", "package-1\n");
  EnergyMeter folder = this->meter();
  expect_unknown(folder, "energy_uj: Is a directory");
}

// Whichever call fails: the sum is right or unknown, and never throws.
TEST_F(Rapl, AnyCallMayFail) {
  FaultIo healthy;
  EnergyMeter(healthy, tree_.path(), {}, kNever).read();
  const int64_t calls = healthy.calls;
  EXPECT_GT(calls, 40);
  for (const FaultIo::Kind kind : {FaultIo::Kind::kError, FaultIo::Kind::kInterrupted}) {
    int64_t known = 0;
    for (int64_t at = 0; at < calls; ++at) {
      FaultIo io(kind, at);
      EnergyMeter meter(io, tree_.path(), {}, kNever);
      tree_.take("intel-rapl:0", 3);
      const double joules = meter.read().host;
      EXPECT_TRUE(std::isnan(joules) ? !meter.problem().empty() : std::abs(joules - 3) < 1e-9) << joules;
      known += std::isnan(joules) ? 0 : 1;
    }
    EXPECT_EQ(known == calls, kind == FaultIo::Kind::kInterrupted) << "an interrupted read is repeated";
  }
}

TEST(EnergyShare, EachNodeAndEachGpuCountsOnce) {
  const std::vector<RankHost> places = {{"n1", 0}, {"n2", 1}, {"n1", 0}, {"n2", 1}, {"n1", 0}};
  const std::vector<std::vector<std::string>> gpus = {{"a"}, {"a"}, {"a", "b", "b"}, {"b"}, {"b", "c"}};
  const std::vector<bool> hosts = {true, true, false, false, false};
  const std::vector<std::vector<std::string>> read = {{"a"}, {"a"}, {"b"}, {"b"}, {"c"}};
  for (size_t rank = 0; rank < places.size(); ++rank) {
    EXPECT_EQ(energy_share(places, gpus, rank).host, hosts[rank]) << rank;
    EXPECT_EQ(energy_share(places, gpus, rank).gpus, read[rank]) << rank;
  }
}

// A build without CUDA has no NVML; what it cannot read is no zero.
TEST_F(Rapl, UnreadableGpusLeaveTheHostReadable) {
  EnergyMeter meter(io_, tree_.path(), {.host = true, .gpus = {"ffff:1b:00.0"}}, kNever);
  tree_.take("intel-rapl:0", 7);
  EXPECT_EQ(meter.read().host, 7);
  EXPECT_TRUE(std::isnan(meter.read().gpus));
  EXPECT_TRUE(std::isnan(meter.read().total()));
  EXPECT_EQ(meter.counters().size(), 4U);
  EXPECT_FALSE(meter.problem().empty());
}

TEST(NodePower, TextsTellWhatIsKnown) {
  const double unknown = std::nan("");
  NodePower power{
      .watts = {212.44, 0}, .seconds = 1.26, .counters = {"package-0", "package-0 dram"}, .problem = {}};
  EXPECT_EQ(power_text(power), "212.4 W of processors and memory over 1.3 s (package-0, package-0 dram)");
  auto json = FieldWriter::to_json(power);
  EXPECT_EQ(json.at("watts"), 212.44);
  EXPECT_EQ(text_of_json(json.at("gpu_watts")), "null") << "it has no GPU";
  power.has_gpus = true;
  power.watts.gpus = 300;
  EXPECT_HAS(power_text(power), "212.4 W of processors and memory, 300.0 W of GPUs over");
  EXPECT_EQ(FieldWriter::to_json(power).at("watts"), 512.44);
  power.watts.host = unknown;
  power.problem = "energy_uj: Permission denied";
  EXPECT_EQ(power_text(power).substr(0, 22), "300.0 W of GPUs over 1");
  EXPECT_HAS(power_text(power), "; not readable: energy_uj: Permission denied");
  json = FieldWriter::to_json(power);
  EXPECT_EQ(text_of_json(json.at("watts")), "null");
  EXPECT_EQ(json.at("gpu_watts"), 300);
  power.watts.gpus = unknown;
  EXPECT_EQ(power_text(power), "not readable: energy_uj: Permission denied");
}

TEST_F(Rapl, PowerIsOfTheTimeSinceTheMeterWasMade) {
  MpiWorld world;
  EnergyMeter meter = this->meter();
  tree_.take("intel-rapl:0", 90);
  const std::vector<NodePower> nodes = power_of_nodes(world, meter, false);
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_GE(nodes[0].seconds, 0.5);
  EXPECT_NEAR(nodes[0].watts.host * nodes[0].seconds, 90, 1e-6);
  EXPECT_EQ(nodes[0].counters.size(), 4U);
  EXPECT_EQ(nodes[0].problem, "");
}

}  // namespace
}  // namespace ripstop
