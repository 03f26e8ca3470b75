// The world of the rank tests, and tensors and values for them.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "model/core/rounding.h"
#include "parallel/communicator.h"
#include "parallel/mesh_axes.h"
#include "parallel/mpi_world.h"

namespace ripstop {

/// The longest message in these tests, in bytes: short, so that ordinary sizes travel in pieces.
inline constexpr int64_t kPieceBytes = 1000;

/// The world; rank_tests_main.cpp makes it before the first test.
MpiWorld& test_world();

/// The device for tests that can run on any: the CPU, or with --device=cuda this rank's GPU.
const Device& test_device();

/// All meshes of `ranks` ranks.
inline std::vector<MeshSizes> meshes_of(int64_t ranks) {
  std::vector<MeshSizes> meshes;
  for (const int64_t tensor : divisors(ranks))
    for (const int64_t replicate : divisors(ranks / tensor))
      for (const int64_t pipeline : divisors(ranks / tensor / replicate))
        meshes.push_back({replicate, ranks / tensor / replicate / pipeline, tensor, pipeline});
  return meshes;
}

/// A tensor over a vector.
template <class T>
Tensor tensor_of(std::vector<T>& elements) {
  return {elements.data(), DTypeOf<T>::value, Shape{static_cast<int64_t>(elements.size())}, Device::cpu()};
}

/// `bytes` bytes of scratch.
inline Tensor scratch_of(std::vector<float>& memory, int64_t bytes) {
  memory.resize(static_cast<size_t>(bytes / 4 + 1));
  return tensor_of(memory);
}

/// A value that differs between ranks and places, with a long fraction in float32.
inline float sample(int64_t rank, int64_t i) {
  return (static_cast<float>((rank * 7919 + i * 104729) % 2003) - 1001.0F) / 37.0F;
}

/// The first `count` samples of a rank, as T.
template <class T>
std::vector<T> samples(int64_t rank, int64_t count) {
  std::vector<T> x(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) x[static_cast<size_t>(i)] = static_cast<T>(sample(rank, i));
  return x;
}

/// Whether the bits are the same.
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace ripstop
