#include <array>

#include "parallel/device_mesh.h"
#include "tests/parallel/rank_tests.h"
#include "train/step/world_totals.h"

namespace ripstop {
namespace {

// All stages of a replica read the same targets, and a tensor group has one loss: both count once.
TEST(EvaluationTotals, CountOnTheLastStageOnce) {
  const int64_t ranks = test_world().communicator().size();
  const Stream stream(Device::cpu());
  for (const MeshSizes& sizes : meshes_of(ranks)) {
    DeviceMesh mesh(test_world(), sizes);
    MemoryLedger ledger;
    Arena arena(Device::cpu(), ledger, MemoryUse{{0, 0, 0, 0, 0, 4096}});
    WorldTotals totals(mesh, stream, ledger, /*data_sets=*/2);
    totals.clear();
    const bool is_last = mesh.coordinates().pipeline == sizes.pipeline - 1;
    const double loss = is_last ? 10.0 * static_cast<double>(mesh.data_rank() + 1) : 0.5;
    const std::array<double, 2> of_sets{loss / 4, loss / 2};
    copy_bytes(stream, totals.loss().data, &loss, 8);
    copy_bytes(stream, totals.set_loss().data, of_sets.data(), 16);
    const double norm = 1;
    copy_bytes(stream, totals.squared_norm().data, &norm, 8);
    totals.sum_over_world(arena, 100 * (mesh.data_rank() + 1), true);
    const WorldTotals::Sums sums = totals.read();
    const int64_t data_ranks = sizes.data_ranks(), sum = data_ranks * (data_ranks + 1) / 2;
    EXPECT_EQ(sums.loss.target_count, 100 * sum) << sizes.to_text();
    EXPECT_EQ(sums.loss.loss, 10.0 * static_cast<double>(sum)) << sizes.to_text();
    EXPECT_EQ(sums.set_loss, (std::vector{sums.loss.loss / 4, sums.loss.loss / 2}));
    // Each rank has a part of the norm, and may ask for a stop.
    EXPECT_EQ(sums.squared_norm, static_cast<double>(ranks));
    EXPECT_EQ(sums.loss.stop_requests, ranks);
  }
}

}  // namespace
}  // namespace ripstop
