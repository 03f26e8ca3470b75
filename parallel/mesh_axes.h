#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ripstop {

/// The axes of a mesh, slowest first: in mesh order the tensor coordinate changes fastest.
/// How to add an axis: CONTRIBUTING.md, "Add anything else".
enum class MeshAxis { kReplicate, kPipeline, kFsdp, kTensor };
inline constexpr std::array<MeshAxis, 4> kMeshAxes{MeshAxis::kReplicate, MeshAxis::kPipeline, MeshAxis::kFsdp,
                                                   MeshAxis::kTensor};
inline constexpr const char *kReplicateAxis = "replicate", *kPipelineAxis = "pipeline", *kFsdpAxis = "fsdp",
                            *kTensorAxis = "tensor";
inline constexpr std::array<const char*, kMeshAxes.size()> kMeshAxisWords{kReplicateAxis, kPipelineAxis,
                                                                          kFsdpAxis, kTensorAxis};
constexpr const char* to_string(MeshAxis axis) {
  return kMeshAxisWords[static_cast<size_t>(axis)];
}

/// Joins text_of(axis) of all axes, with `between` between them. Leaves out empty texts.
template <class TextOf>
std::string axes_text(std::string_view between, const TextOf& text_of) {
  std::string text;
  for (const MeshAxis axis : kMeshAxes) {
    const std::string part = text_of(axis);
    if (!text.empty() && !part.empty()) text += between;
    text += part;
  }
  return text;
}

/// One value for each axis of a mesh. If `kSizes`, the values are numbers of ranks: 1 by default, but fsdp is
/// 0, which means "as many ranks as the other axes leave".
template <class T, bool kSizes = false>
struct PerAxis {
  T replicate = unset();
  T fsdp = T();
  T tensor = unset();
  T pipeline = unset();  ///< the last member, so that {2, 4, 1} is replicate 2 x fsdp 4 x tensor 1

  T& operator[](MeshAxis axis) { return this->*kMembers[static_cast<size_t>(axis)]; }
  const T& operator[](MeshAxis axis) const { return this->*kMembers[static_cast<size_t>(axis)]; }

  T sum() const {
    T sum{};
    for (const MeshAxis axis : kMeshAxes) sum += (*this)[axis];
    return sum;
  }
  constexpr T ranks() const requires kSizes { return replicate * pipeline * fsdp * tensor; }
  /// Ranks that differ only along pipeline and tensor are one data rank: they work on the same sequences.
  constexpr T data_ranks() const requires kSizes { return replicate * fsdp; }
  /// The rank at the coordinates `at` in mesh order: tensor fastest, replicate slowest.
  T rank_of(const PerAxis<T>& at) const requires kSizes {
    T rank{};
    for (const MeshAxis axis : kMeshAxes) rank = rank * (*this)[axis] + at[axis];
    return rank;
  }
  /// Whether texts name the axis: true except for a pipeline of size 1.
  bool is_named(MeshAxis axis) const requires kSizes { return axis != MeshAxis::kPipeline || pipeline != 1; }
  /// Returns a text like "replicate 2 x fsdp 2 x tensor 2"; fsdp may be "auto".
  std::string to_text() const requires kSizes {
    return axes_text(" x ", [&](MeshAxis axis) -> std::string {
      const T size = (*this)[axis];
      if (!is_named(axis)) return "";
      return to_string(axis) + (axis == MeshAxis::kFsdp && size == 0 ? " auto" : " " + std::to_string(size));
    });
  }

  PerAxis operator-(const PerAxis& other) const {
    PerAxis difference;
    for (const MeshAxis axis : kMeshAxes) difference[axis] = (*this)[axis] - other[axis];
    return difference;
  }
  bool operator==(const PerAxis&) const = default;
  /// Fields for data/text/json_struct.h: {"replicate": ..., "pipeline": ..., ...}.
  template <class Self, class Fields>
  static void fields(Self& self, Fields& field) {
    for (const MeshAxis axis : kMeshAxes) field(to_string(axis), self[axis]);
  }

 private:
  static constexpr T unset() {
    if constexpr (kSizes) return T(1);
    return T();
  }
  static constexpr std::array<T PerAxis::*, kMeshAxes.size()> kMembers{
      &PerAxis::replicate, &PerAxis::pipeline, &PerAxis::fsdp, &PerAxis::tensor};
};

using MeshSizes = PerAxis<int64_t, true>;
/// A rank's index along each axis.
using MeshCoordinates = PerAxis<int64_t>;
/// Bytes that a rank sends to other ranks along each axis.
using AxisBytes = PerAxis<int64_t>;
/// Seconds for which a rank waits for communication along each axis.
using AxisSeconds = PerAxis<double>;
inline constexpr MeshSizes kMeshOfOne{.fsdp = 1};

/// For nlohmann's JSON types: {"replicate": ..., "pipeline": ..., ...}.
template <class Json, class T, bool kSizes>
void to_json(Json& json, const PerAxis<T, kSizes>& values) {
  for (const MeshAxis axis : kMeshAxes) json[to_string(axis)] = values[axis];
}

}  // namespace ripstop
