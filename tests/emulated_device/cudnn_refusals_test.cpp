// The stand-ins refuse all that cuDNN refuses, in both modes.
#include <cudnn.h>
#include <gtest/gtest.h>

#include "model/kernels/cuda/cudnn_graph.h"
#include "tests/emulated_device/cudnn.h"
#include "tests/emulated_device/cudnn_test_queue.h"

namespace ripstop {
namespace {

using cuda::Descriptor;
using emulated::CudnnMode;
using emulated::Refused;

constexpr int64_t kExtents[] = {2, 3, 4, 8}, kStrides[] = {96, 32, 8, 1};

class CudnnRefusals : public testing::TestWithParam<CudnnMode> {
 protected:
  CudnnRefusals() { emulated::set_cudnn_mode(GetParam()); }
  ~CudnnRefusals() override { emulated::set_cudnn_mode(CudnnMode::kRecord); }

  static Descriptor tensor(int64_t id = 1) {
    Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const int64_t>(kExtents));
    t.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const int64_t>(kStrides));
    t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
    return t;
  }
  static cudnnStatus_t set(const Descriptor& d, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    return cudnnBackendSetAttribute(d.get(), name, type, count, values);
  }
};

TEST_P(CudnnRefusals, AttributesOfFinalizedDescriptors) {
  Descriptor t = tensor();
  t.finalize();
  const int64_t id = 2;
  EXPECT_NE(set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id), CUDNN_STATUS_SUCCESS);
}

TEST_P(CudnnRefusals, AttributesOfWrongTypeOrCount) {
  const Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t values[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_NE(set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, values), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, values), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(set(t, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, values), CUDNN_STATUS_SUCCESS);
  EXPECT_NE(set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, nullptr), CUDNN_STATUS_SUCCESS);
}

TEST_P(CudnnRefusals, IncompleteDescriptors) {
  const Descriptor empty(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  EXPECT_NE(cudnnBackendFinalize(empty.get()), CUDNN_STATUS_SUCCESS);
  Descriptor uneven(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  uneven.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  uneven.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const int64_t>(kExtents));
  uneven.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const int64_t>(kStrides, 3));
  uneven.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, int64_t{1});
  uneven.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
  EXPECT_NE(cudnnBackendFinalize(uneven.get()), CUDNN_STATUS_SUCCESS);
}

TEST_P(CudnnRefusals, DescriptorsOfPartsThatAreNotFinalized) {
  const Descriptor t = tensor(), other = tensor(2);
  Descriptor o(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  const cudnnBackendDescriptor_t x = t.get(), y = other.get();
  const bool set_refused = set(o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x) !=
                               CUDNN_STATUS_SUCCESS ||
                           set(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y) !=
                               CUDNN_STATUS_SUCCESS;
  EXPECT_TRUE(set_refused || cudnnBackendFinalize(o.get()) != CUDNN_STATUS_SUCCESS);
}

TEST_P(CudnnRefusals, AttributesOfDescriptorsThatAreNotFinalized) {
  const Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  int64_t count = 0, bytes = 0;
  EXPECT_NE(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                     1, &count, &bytes),
            CUDNN_STATUS_SUCCESS);
}

TEST_P(CudnnRefusals, DescriptorsAndHandlesThatAreGone) {
  cudnnBackendDescriptor_t raw = nullptr;
  ASSERT_EQ(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &raw), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnBackendDestroyDescriptor(raw), CUDNN_STATUS_SUCCESS);
  EXPECT_THROW(cudnnBackendDestroyDescriptor(raw), Refused);
  EXPECT_THROW(cudnnBackendFinalize(raw), Refused);
  cudnnHandle_t handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnDestroy(handle), CUDNN_STATUS_SUCCESS);
  EXPECT_THROW(cudnnSetStream(handle, nullptr), Refused);
  EXPECT_THROW(cudnnDestroy(handle), Refused);
}

TEST_P(CudnnRefusals, VariantPacksThatDoNotFit) {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const int64_t ids[] = {1, 2};
  void* pointers[] = {pack.get(), pack.get()};
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span<const int64_t>(ids, 2));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<void* const>(pointers, 1));
  EXPECT_NE(cudnnBackendFinalize(pack.get()), CUDNN_STATUS_SUCCESS) << "two ids, one pointer";
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<void* const>(pointers, 2));
  EXPECT_EQ(cudnnBackendFinalize(pack.get()), CUDNN_STATUS_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Modes, CudnnRefusals, testing::Values(CudnnMode::kRecord, CudnnMode::kReal),
                         [](const auto& info) { return info.param == CudnnMode::kReal ? "Real" : "Record"; });

}  // namespace
}  // namespace ripstop
