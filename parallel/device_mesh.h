// DeviceMesh: all ranks as a grid of replicate x fsdp x tensor, with a group of ranks per axis.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/mesh_axes.h"
#include "parallel/mpi_world.h"

namespace ripstop {

/// `sizes` with fsdp filled in. Throws Error(kResources), whose hint has meshes of about this shape that fit,
/// if the mesh has another number of ranks than `ranks`.
MeshSizes resolve_mesh(const MeshSizes& sizes, int64_t ranks);

/// The world's rank at each place of the mesh, tensor fastest, then fsdp, then replicate. Whatever order the
/// launcher gave, every tensor group lies inside one node, nodes come one after another, and the world's rank
/// 0 comes first. `node_of_rank` has a number for each rank's node; `sizes` are resolved. If nodes do not
/// divide into tensor groups, throws Error(kResources) with the nodes and the sizes that fit, or with
/// `across_nodes` lets as few groups as possible span nodes. Pure.
std::vector<int64_t> mesh_order(const std::vector<int64_t>& node_of_rank, const MeshSizes& sizes,
                                bool across_nodes, const std::vector<std::string>& hosts = {});

/// The coordinates of `rank` in mesh order: the inverse of MeshSizes::rank_of. Throws Error(kBug) unless
/// 0 <= rank < sizes.ranks().
MeshCoordinates mesh_coordinates(const MeshSizes& sizes, int64_t rank);

/// A group of a mesh, and this rank's place in it.
struct MeshGroup {
  const char* name = "world";
  int64_t rank = 0, size = 1;
  int64_t color = 0;  ///< the number of the group among the groups of its axis
};

/// The groups of one rank, each in mesh order.
struct MeshGroups {
  std::unique_ptr<Communicator> world;
  PerAxis<std::unique_ptr<Communicator>> along;
  std::unique_ptr<Communicator> fsdp_again;  ///< gathers use along.fsdp, reductions this one
};

/// Makes the groups of the rank at `at`. `make` may be collective: all ranks call it in the same order.
MeshGroups mesh_groups(const MeshSizes& sizes, const MeshCoordinates& at,
                       const std::function<std::unique_ptr<Communicator>(const MeshGroup&)>& make);

/// The mesh as one rank sees it. Owns the communicators of its axes. Ranks of `world()` are in mesh order.
class DeviceMesh {
 public:
  /// Cuts the world into a mesh whose collectives move tensors on `device`, this rank's GPU or the CPU. The
  /// world must outlive the mesh. Throws Error(kResources) if the sizes do not fit. Collective.
  DeviceMesh(MpiWorld& world, const MeshSizes& sizes, bool allow_tensor_across_nodes = false,
             const Device& device = Device::cpu());

  /// The mesh of the rank at `coordinates`, made of planned communicators. For the planner, which runs one
  /// rank on kMeta; `kind` is the kind of the planned device.
  static DeviceMesh planned(const MeshSizes& sizes, const MeshCoordinates& coordinates,
                            DeviceKind kind = DeviceKind::kCpu);

  /// The mesh of the rank at `coordinates`, made of existing groups. Throws Error(kBug) if a group has
  /// another size or rank than the mesh. Not collective.
  DeviceMesh(const MeshSizes& sizes, const MeshCoordinates& coordinates, MeshGroups groups);

  /// This rank alone, as a mesh of one. Not collective.
  static DeviceMesh alone();

  /// A mesh of the ranks that differ from this one along `axis` alone; its other axes have one rank.
  /// Collective over `axis`.
  DeviceMesh along(MeshAxis axis) const;

  const MeshSizes& sizes() const { return sizes_; }
  const MeshCoordinates& coordinates() const { return coordinates_; }
  /// This rank's place in mesh order, which is its rank in `world()`.
  int64_t position() const { return world().rank(); }
  int64_t ranks() const { return sizes_.ranks(); }

  /// All ranks, in mesh order.
  Communicator& world() const { return *groups_.world; }
  /// The group of each axis: the ranks that differ from this one along that axis alone.
  Communicator& replicate() const { return *groups_.along.replicate; }
  Communicator& tensor() const { return *groups_.along.tensor; }
  /// The fsdp axis, twice: gathers and reductions may then be under way in any order.
  Communicator& fsdp_gather() const { return *groups_.along.fsdp; }
  Communicator& fsdp_reduce() const { return *groups_.fsdp_again; }

  /// The number of this rank's tensor group among the data ranks, and how many there are.
  int64_t data_rank() const { return coordinates_.replicate * sizes_.fsdp + coordinates_.fsdp; }
  int64_t data_ranks() const { return sizes_.data_ranks(); }

  /// Bytes sent along each axis since the start, by all communicators of the axis.
  AxisBytes bytes_sent() const;
  /// Exposed communication of each axis since the start. Waits of the world group, as in the step's last sum,
  /// belong to no axis.
  AxisSeconds seconds_waited() const;
  /// Exposed communication of all axes and of the world group.
  double seconds_waited_in_all() const { return seconds_waited().sum() + world().seconds_waited(); }

  /// The host of each position.
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// A picture of the mesh: a line for each data rank, at most 16, with the hosts of its tensor group. Ends
  /// without a line end.
  std::string describe() const;

  /// Sets the step that errors of this mesh's communicators name. Does nothing without an MpiWorld.
  void set_step(int64_t step) const;

 private:
  MeshSizes sizes_;
  MeshCoordinates coordinates_;
  MpiWorld* mpi_ = nullptr;
  std::vector<std::string> hosts_;
  MeshGroups groups_;
};

}  // namespace ripstop
