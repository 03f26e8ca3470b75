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

/// Returns `sizes` with fsdp filled in if it is 0. Throws Error(kResources) for other sizes below 1 and, with
/// a hint that names similar meshes, if the mesh does not have `ranks` ranks. `tensor_sizes`: sizes of the
/// tensor axis that the hint may offer; empty: any.
MeshSizes resolve_mesh(const MeshSizes& sizes, int64_t ranks, const std::vector<int64_t>& tensor_sizes = {});

/// Returns the world rank at each place in mesh order. World rank 0 comes first. Tensor groups lie inside
/// nodes, and nodes come one after another, in any launcher order. If the ranks of a node do not divide into
/// tensor groups: with `across_nodes`, as few groups as possible span nodes; otherwise throws
/// Error(kResources), which names the nodes and the sizes that fit. `node_of_rank` has the number of each
/// rank's node; `sizes` must be resolved. Pure.
std::vector<int64_t> mesh_order(const std::vector<int64_t>& node_of_rank, const MeshSizes& sizes,
                                bool across_nodes, const std::vector<std::string>& hosts = {});

/// The inverse of MeshSizes::rank_of(). Throws Error(kBug) unless 0 <= rank < sizes.ranks().
MeshCoordinates mesh_coordinates(const MeshSizes& sizes, int64_t rank);

/// A group that mesh_groups() is to make, and the rank of this process in it.
struct MeshGroup {
  const char* name = "world";
  int64_t rank = 0, size = 1;
  int64_t color = 0;     ///< position of its first rank in the mesh
  bool is_link = false;  ///< a group of two neighbours of a pipeline
};

/// The groups of two neighbours of a pipeline. Activations go from stage to stage, gradients back. Each link
/// has a group for each way, so that activations never wait for gradients. Null without a neighbour on that
/// side. If each rank has two stages, the first and the last rank are neighbours.
struct PipelineGroups {
  std::unique_ptr<Communicator> activations_in, activations_out, gradients_in, gradients_out;

  /// Calls call(group) for each group that is not null.
  void for_each(const auto& call) const {
    for (const auto* group : {&activations_in, &activations_out, &gradients_in, &gradients_out})
      if (*group != nullptr) call(**group);
  }
};

/// The groups of one rank, each with its ranks in mesh order.
struct MeshGroups {
  std::unique_ptr<Communicator> world;
  PerAxis<std::unique_ptr<Communicator>> along;
  /// A second group of the fsdp axis, for reductions; gathers use along.fsdp.
  std::unique_ptr<Communicator> fsdp_again;
  PipelineGroups links = {};
};

using MakeGroup = std::function<std::unique_ptr<Communicator>(const MeshGroup&)>;

/// Makes the groups of the rank at the coordinates `at`. All ranks call make(), which may be collective, in
/// the same order and equally often: a rank without a link makes a group of itself and drops it.
/// Throws Error(kBug) if make() gives a group of another size or rank.
MeshGroups mesh_groups(const MeshSizes& sizes, const MeshCoordinates& at, const MakeGroup& make,
                       int64_t stages_per_rank = 1);

/// The mesh as one rank sees it. Owns the communicators of its axes.
class DeviceMesh {
 public:
  /// Divides the world into a mesh whose collectives move tensors on `device`. The world must outlive the
  /// mesh. `stages_per_rank`: for a pipeline. Throws Error(kResources) if the sizes do not fit the world.
  /// Collective.
  DeviceMesh(MpiWorld& world, const MeshSizes& sizes, bool allow_tensor_across_nodes = false,
             const Device& device = Device::cpu(), int64_t stages_per_rank = 1);

  /// Makes the mesh of the rank at `coordinates` from planned communicators, for the planner on kMeta.
  /// `kind`: the planned device.
  static DeviceMesh planned(const MeshSizes& sizes, const MeshCoordinates& coordinates,
                            DeviceKind kind = DeviceKind::kCpu, int64_t stages_per_rank = 1);

  /// Makes the mesh with the groups of mesh_groups(), whose errors it throws. Collective if make() is.
  DeviceMesh(const MeshSizes& sizes, const MeshCoordinates& coordinates, const MakeGroup& make,
             int64_t stages_per_rank = 1);

  /// Makes a mesh of this rank alone. Not collective.
  static DeviceMesh alone();

  /// Makes a mesh of the ranks that differ from this rank only along `axis`. Collective over `axis`.
  DeviceMesh along(MeshAxis axis, int64_t stages_per_rank = 1) const;

  const MeshSizes& sizes() const { return sizes_; }
  const MeshCoordinates& coordinates() const { return coordinates_; }
  /// This rank's place in mesh order, which is also its rank in world().
  int64_t position() const { return world().rank(); }
  int64_t ranks() const { return sizes_.ranks(); }

  /// The group of all ranks, in mesh order.
  Communicator& world() const { return *groups_.world; }
  /// The ranks whose coordinates differ from this rank's only along one axis: replicate, pipeline or tensor.
  Communicator& replicate() const { return *groups_.along.replicate; }
  Communicator& pipeline() const { return *groups_.along.pipeline; }
  Communicator& tensor() const { return *groups_.along.tensor; }
  /// Two groups of the fsdp axis, so that a gather and a reduction may run at the same time, in any order.
  Communicator& fsdp_gather() const { return *groups_.along.fsdp; }
  Communicator& fsdp_reduce() const { return *groups_.fsdp_again; }

  /// The groups that connect this rank's stages with its neighbours' stages; all null without a pipeline.
  const PipelineGroups& links() const { return groups_.links; }

  /// The index of this rank's sequences: all stages and all ranks of a tensor group read the same ones.
  int64_t data_rank() const { return coordinates_.replicate * sizes_.fsdp + coordinates_.fsdp; }
  int64_t data_ranks() const { return sizes_.data_ranks(); }

  /// Bytes that this rank has sent along each axis since the start.
  AxisBytes bytes_sent() const;
  /// Exposed communication of each axis since the start, in seconds, without waits of the world group.
  AxisSeconds seconds_waited() const;
  double seconds_waited_in_all() const { return seconds_waited().sum() + world().seconds_waited(); }

  /// Hosts of the ranks, in mesh order; empty for a mesh of a MakeGroup.
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// Draws the mesh: its sizes, a line with hosts for each of at most 16 tensor groups, and how many more
  /// there are. The last line has no line end.
  std::string describe() const;

  /// Sets the step in errors of the mesh's communicators. Does nothing without an MpiWorld.
  void set_step(int64_t step) const;
  /// Adds stage and micro-batch to these errors, if there is a pipeline; -1 removes them.
  void set_micro_batch(int64_t stage = -1, int64_t micro_batch = -1) const;

 private:
  MeshSizes sizes_;
  MeshCoordinates coordinates_;
  MpiWorld* mpi_ = nullptr;
  std::vector<std::string> hosts_;
  MeshGroups groups_;
};

}  // namespace ripstop
