// DeviceMesh: all ranks as a grid of replicate x fsdp x tensor, and one group of ranks per axis.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/communicator.h"
#include "parallel/mpi_world.h"

namespace ripstop {

/// The axes of a mesh.
enum class MeshAxis { kReplicate, kFsdp, kTensor };
inline constexpr std::array<MeshAxis, 3> kMeshAxes{MeshAxis::kReplicate, MeshAxis::kFsdp, MeshAxis::kTensor};
/// "replicate", "fsdp", "tensor".
std::string_view to_string(MeshAxis axis);

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
  /// The ranks along one axis.
  int64_t along(MeshAxis axis) const {
    return axis == MeshAxis::kReplicate ? replicate : axis == MeshAxis::kFsdp ? fsdp : tensor;
  }
  /// The rank at `at`, in mesh order: tensor fastest, then fsdp, then replicate.
  int64_t rank_of(const MeshCoordinates& at) const {
    return (at.replicate * fsdp + at.fsdp) * tensor + at.tensor;
  }
  std::string to_text() const;
  bool operator==(const MeshSizes&) const = default;
};

/// `sizes` with fsdp filled in. Throws Error(kResources), with meshes of about this shape that fit, if the
/// sizes do not need exactly `ranks` ranks.
MeshSizes resolve_mesh(const MeshSizes& sizes, int64_t ranks);

/// The world's rank at each place of the mesh, tensor fastest, then fsdp, then replicate. Whatever order the
/// launcher gave, every tensor group lies inside one node, nodes come one after another, and the world's rank
/// 0 comes first. `node_of_rank` names each rank's node by any number; `sizes` are resolved. If nodes do not
/// divide into tensor groups, throws Error(kResources) with the nodes and the sizes that fit; with
/// `across_nodes`, lets as few groups as possible span nodes instead. Pure.
std::vector<int64_t> mesh_order(const std::vector<int64_t>& node_of_rank, const MeshSizes& sizes,
                                bool across_nodes, const std::vector<std::string>& hosts = {});

/// The coordinates of `rank` in mesh order, 0 <= rank < sizes.ranks(): the inverse of MeshSizes::rank_of.
/// Throws Error(kBug) if there is no such rank.
MeshCoordinates mesh_coordinates(const MeshSizes& sizes, int64_t rank);

/// The groups of a mesh as one rank sees it, each in mesh order.
struct MeshGroups {
  std::unique_ptr<Communicator> world, replicate, fsdp_gather, fsdp_reduce, tensor;
};

/// The mesh as one rank sees it. Owns the communicators of its axes. Ranks of `world()` are in mesh order.
class DeviceMesh {
 public:
  /// Cuts the world into a mesh whose collectives move tensors on `device`, this rank's GPU or the CPU. The
  /// world must outlive the mesh. Throws Error(kResources) if the sizes do not fit. Collective.
  DeviceMesh(MpiWorld& world, const MeshSizes& sizes, bool allow_tensor_across_nodes = false,
             const Device& device = Device::cpu());

  /// The mesh as the rank at `coordinates` sees it, made of planned communicators. For the planner, which
  /// runs one rank on kMeta; `kind` is the kind of the planned device.
  static DeviceMesh planned(const MeshSizes& sizes, const MeshCoordinates& coordinates,
                            DeviceKind kind = DeviceKind::kCpu);

  /// The mesh of groups that exist already, as the rank at `coordinates` sees it. Throws Error(kBug) if a
  /// group has another size or rank than the mesh. Not collective.
  DeviceMesh(const MeshSizes& sizes, const MeshCoordinates& coordinates, MeshGroups groups);

  /// This rank alone, as a mesh of one. Not collective.
  static DeviceMesh alone();

  /// The ranks that differ from this one along `axis` alone, as a mesh of their own, whose other axes have
  /// one rank. Collective over that axis.
  DeviceMesh along(MeshAxis axis) const;

  const MeshSizes& sizes() const { return sizes_; }
  const MeshCoordinates& coordinates() const { return coordinates_; }
  /// This rank's place in mesh order, which is its rank in `world()`.
  int64_t position() const { return world_->rank(); }
  int64_t ranks() const { return sizes_.ranks(); }

  /// All ranks, in mesh order.
  Communicator& world() const { return *world_; }
  /// The ranks that differ from this one along one axis alone. An axis of one rank sends nothing.
  Communicator& replicate() const { return *replicate_; }
  Communicator& tensor() const { return *tensor_; }
  /// The fsdp axis, twice: gathers and reductions may then be under way in any order.
  Communicator& fsdp_gather() const { return *fsdp_gather_; }
  Communicator& fsdp_reduce() const { return *fsdp_reduce_; }

  /// The ranks of a tensor group work on the same sequences and are one data rank: its number, and how many
  /// there are.
  int64_t data_rank() const { return coordinates_.replicate * sizes_.fsdp + coordinates_.fsdp; }
  int64_t data_ranks() const { return sizes_.replicate * sizes_.fsdp; }

  /// Exposed communication of each axis since the start, in seconds, all its communicators together. Waits of
  /// the world group, as in the step's last sum, belong to no axis.
  struct AxisSeconds {
    double replicate = 0, fsdp = 0, tensor = 0;
  };
  /// Bytes sent along each axis, likewise.
  struct AxisBytes {
    int64_t replicate = 0, fsdp = 0, tensor = 0;
    bool operator==(const AxisBytes&) const = default;
  };
  /// Exposed communication of all groups, the world's too.
  double seconds_waited_in_all() const;
  AxisBytes bytes_sent() const;
  AxisSeconds seconds_waited() const;

  /// The host of each position.
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// A picture of the mesh, one line a data rank with the hosts of its tensor group, each host once. Shows at
  /// most 16 data ranks. Without the last line end.
  std::string describe() const;

  /// Sets the step that errors of this mesh's communicators name. Does nothing on a planned mesh.
  void set_step(int64_t step) const;

 private:
  MeshSizes sizes_;
  MeshCoordinates coordinates_;
  MpiWorld* mpi_ = nullptr;
  std::vector<std::string> hosts_;
  std::unique_ptr<Communicator> world_, replicate_, fsdp_gather_, fsdp_reduce_, tensor_;
};

}  // namespace ripstop
