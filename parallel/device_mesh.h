// DeviceMesh: all ranks as a grid of replicate x fsdp x tensor, and one group of ranks per axis.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/mpi_world.h"

namespace ripstop {

/// A rank's place on the mesh: its index on each axis.
struct MeshCoordinates {
  int64_t replicate = 0, fsdp = 0, tensor = 0;
  bool operator==(const MeshCoordinates&) const = default;
};

/// Ranks along each axis. Written "replicate 2 x fsdp 2 x tensor 2".
struct MeshSizes {
  int64_t replicate = 1;
  int64_t fsdp = 0;  ///< 0: as many as the other two leave
  int64_t tensor = 1;

  int64_t ranks() const { return replicate * fsdp * tensor; }
  /// The rank at `at`, in mesh order: tensor fastest, then fsdp, then replicate.
  int64_t rank_of(const MeshCoordinates& at) const {
    return (at.replicate * fsdp + at.fsdp) * tensor + at.tensor;
  }
  std::string to_text() const;
  bool operator==(const MeshSizes&) const = default;
};

/// `sizes` with fsdp filled in. Throws Error(kResources), with the meshes of about this shape that fit, where
/// `ranks` ranks are not what the sizes need.
MeshSizes resolve_mesh(const MeshSizes& sizes, int64_t ranks);

/// Which rank of the world takes which place, tensor fastest, then fsdp, then replicate: every tensor group
/// inside one node, nodes one after another, the world's rank 0 first, whatever order the launcher gave.
/// `node_of_rank` names each rank's node by any number. Where nodes do not divide into tensor groups: Error
/// (kResources) with the nodes and the sizes that fit, or, with `across_nodes`, as few groups as possible
/// across nodes. `sizes` are resolved. Pure.
std::vector<int64_t> mesh_order(const std::vector<int64_t>& node_of_rank, const MeshSizes& sizes,
                                bool across_nodes, const std::vector<std::string>& hosts = {});

/// The coordinates of `rank` in mesh order, 0 <= rank < sizes.ranks(): the inverse of MeshSizes::rank_of.
/// Throws Error(kBug) if there is no such rank.
MeshCoordinates mesh_coordinates(const MeshSizes& sizes, int64_t rank);

/// The mesh as one rank sees it. Owns its communicators. Ranks of `world()` are positions: tensor fastest.
class DeviceMesh {
 public:
  /// Cuts the world into a mesh; all ranks call. Throws Error(kResources) where the sizes do not fit. The
  /// world outlives the mesh.
  /// Its collectives move tensors on `device`, which is this rank's choose_device or the CPU.
  DeviceMesh(MpiWorld& world, const MeshSizes& sizes, bool allow_tensor_across_nodes = false,
             const Device& device = Device::cpu());

  /// The mesh at `coordinates` made of planned communicators: for the planner, which runs one rank on kMeta;
  /// `kind` is the planned device's.
  static DeviceMesh planned(const MeshSizes& sizes, const MeshCoordinates& coordinates,
                            DeviceKind kind = DeviceKind::kCpu);

  const MeshSizes& sizes() const { return sizes_; }
  const MeshCoordinates& coordinates() const { return coordinates_; }
  /// This rank's position: its rank in `world()`.
  int64_t position() const { return world_->rank(); }
  int64_t ranks() const { return sizes_.ranks(); }

  /// All ranks, in mesh order.
  Communicator& world() const { return *world_; }
  /// The ranks that differ from this one along one axis alone. Axes of one rank copy, and send nothing.
  Communicator& replicate() const { return *replicate_; }
  Communicator& tensor() const { return *tensor_; }
  /// Twice the fsdp axis, so that gathers and reductions may be under way in any order.
  Communicator& fsdp_gather() const { return *fsdp_gather_; }
  Communicator& fsdp_reduce() const { return *fsdp_reduce_; }

  /// Ranks of a tensor group work on the same sequences; which of the groups this is, and how many.
  int64_t data_rank() const { return coordinates_.replicate * sizes_.fsdp + coordinates_.fsdp; }
  int64_t data_ranks() const { return sizes_.replicate * sizes_.fsdp; }

  /// Bytes sent and seconds waited along each axis since the start, all its communicators together.
  struct AxisTotals {
    double replicate = 0, fsdp = 0, tensor = 0;
  };
  struct AxisBytes {
    int64_t replicate = 0, fsdp = 0, tensor = 0;
    bool operator==(const AxisBytes&) const = default;
  };
  AxisBytes bytes_sent() const;
  AxisTotals seconds_waited() const;

  /// The host of each position.
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// A picture of the mesh: one line a data rank with the hosts of its tensor group, runs of equal ones shown
  /// once. Without the last line end.
  std::string describe() const;

  /// The step that errors of this mesh's communicators name from now on. Nothing on a planned mesh.
  void set_step(int64_t step) const;

 private:
  DeviceMesh(const MeshSizes& sizes, const MeshCoordinates& coordinates);

  MeshSizes sizes_;
  MeshCoordinates coordinates_;
  MpiWorld* mpi_ = nullptr;
  std::vector<std::string> hosts_;
  std::unique_ptr<Communicator> world_, replicate_, fsdp_gather_, fsdp_reduce_, tensor_;
};

}  // namespace ripstop
