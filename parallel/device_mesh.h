// DeviceMesh: arranges all ranks as a grid of replicate x fsdp x tensor, with a group of ranks for each axis.
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

/// Returns `sizes` with fsdp filled in. Throws Error(kResources) if the mesh does not have `ranks` ranks; the
/// hint names similar meshes that do.
MeshSizes resolve_mesh(const MeshSizes& sizes, int64_t ranks);

/// Returns, for each place of the mesh in mesh order (tensor fastest, then fsdp, then replicate), the world
/// rank at that place. Whatever order the launcher gave, every tensor group lies inside one node, nodes come
/// one after another, and world rank 0 comes first. `node_of_rank` has the number of each rank's node;
/// `sizes` must be resolved. Pure.
/// If the ranks of a node do not divide into tensor groups: with `across_nodes`, as few groups as possible
/// span nodes; otherwise throws Error(kResources), which names the nodes and the sizes that fit.
std::vector<int64_t> mesh_order(const std::vector<int64_t>& node_of_rank, const MeshSizes& sizes,
                                bool across_nodes, const std::vector<std::string>& hosts = {});

/// The coordinates of the rank `rank` in mesh order: the inverse of MeshSizes::rank_of(). Throws Error(kBug)
/// unless 0 <= rank < sizes.ranks().
MeshCoordinates mesh_coordinates(const MeshSizes& sizes, int64_t rank);

/// A group of a mesh that is to be made, and the rank of this process in the group.
struct MeshGroup {
  const char* name = "world";
  int64_t rank = 0, size = 1;
  int64_t color = 0;  ///< number of this group among the groups of its axis
};

/// The groups of one rank. The ranks of each group are in mesh order.
struct MeshGroups {
  std::unique_ptr<Communicator> world;
  PerAxis<std::unique_ptr<Communicator>> along;
  /// A second group of the fsdp axis: gathers use along.fsdp, reductions use fsdp_again.
  std::unique_ptr<Communicator> fsdp_again;
};

/// Makes the groups of the rank at the coordinates `at`, by a call of make(group) for each. `make` may be
/// collective: all ranks call it for the groups in the same order.
MeshGroups mesh_groups(const MeshSizes& sizes, const MeshCoordinates& at,
                       const std::function<std::unique_ptr<Communicator>(const MeshGroup&)>& make);

/// The mesh as one rank sees it. Owns the communicators of its axes. The ranks of world() are in mesh order.
class DeviceMesh {
 public:
  /// Divides the world into a mesh whose collectives move tensors on `device`, which is this rank's GPU or
  /// the CPU. The world must outlive the mesh. Throws Error(kResources) if the sizes do not fit the world.
  /// Collective.
  DeviceMesh(MpiWorld& world, const MeshSizes& sizes, bool allow_tensor_across_nodes = false,
             const Device& device = Device::cpu());

  /// Makes the mesh of the rank at `coordinates` from planned communicators. For the planner, which runs one
  /// rank on kMeta; `kind` is the kind of the planned device.
  static DeviceMesh planned(const MeshSizes& sizes, const MeshCoordinates& coordinates,
                            DeviceKind kind = DeviceKind::kCpu);

  /// Makes the mesh of the rank at `coordinates` from existing groups. Throws Error(kBug) if size or rank of
  /// a group are not those that the mesh has. Not collective.
  DeviceMesh(const MeshSizes& sizes, const MeshCoordinates& coordinates, MeshGroups groups);

  /// Makes a mesh of this rank alone. Not collective.
  static DeviceMesh alone();

  /// Makes a mesh of the ranks whose coordinates differ from this rank's only along `axis`. Its other axes
  /// have one rank. Collective over `axis`.
  DeviceMesh along(MeshAxis axis) const;

  const MeshSizes& sizes() const { return sizes_; }
  const MeshCoordinates& coordinates() const { return coordinates_; }
  /// The place of this rank in mesh order, which is also its rank in world().
  int64_t position() const { return world().rank(); }
  int64_t ranks() const { return sizes_.ranks(); }

  /// The group of all ranks, in mesh order.
  Communicator& world() const { return *groups_.world; }
  /// The group of an axis: the ranks whose coordinates differ from this rank's only along that axis.
  Communicator& replicate() const { return *groups_.along.replicate; }
  Communicator& tensor() const { return *groups_.along.tensor; }
  /// Two groups of the fsdp axis. With separate groups, a gather and a reduction may be under way together,
  /// in any order.
  Communicator& fsdp_gather() const { return *groups_.along.fsdp; }
  Communicator& fsdp_reduce() const { return *groups_.fsdp_again; }

  /// The index of this rank's tensor group among all tensor groups, each of which counts as one data rank.
  int64_t data_rank() const { return coordinates_.replicate * sizes_.fsdp + coordinates_.fsdp; }
  int64_t data_ranks() const { return sizes_.data_ranks(); }

  /// Bytes that all communicators of each axis have sent since the start.
  AxisBytes bytes_sent() const;
  /// Exposed communication of each axis since the start, in seconds. Waits of the world group, as in the last
  /// sum of a step, belong to no axis.
  AxisSeconds seconds_waited() const;
  /// Exposed communication of all axes and of the world group together, in seconds.
  double seconds_waited_in_all() const { return seconds_waited().sum() + world().seconds_waited(); }

  /// The host of the rank at each place in mesh order.
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// A drawing of the mesh: one line for each data rank, for at most 16, with the hosts of its tensor group.
  /// Has no line end at the end.
  std::string describe() const;

  /// Sets the step that errors of the communicators of this mesh name. Does nothing on a mesh without an
  /// MpiWorld.
  void set_step(int64_t step) const;

 private:
  MeshSizes sizes_;
  MeshCoordinates coordinates_;
  MpiWorld* mpi_ = nullptr;
  std::vector<std::string> hosts_;
  MeshGroups groups_;
};

}  // namespace ripstop
