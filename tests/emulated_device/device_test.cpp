// Tests of the emulated GPU itself: faults that a real GPU punishes must show here, and what a real GPU
// promises must hold.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/emulated_device/scheduler.h"

namespace ripstop::emulated {
namespace {

constexpr uint64_t kSeeds = 60;
constexpr size_t kBytes = 1024, kCount = kBytes / sizeof(float);

void ok(cudaError_t result) {
  ASSERT_EQ(result, cudaSuccess) << cudaGetErrorName(result);
}

/// Two streams that do not wait for the legacy stream, two blocks of device memory, pinned memory.
class EmulatedDevice : public testing::Test {
 protected:
  EmulatedDevice() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (cudaStream_t* stream : {&first, &second})
      ok(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, 0));
    for (float** block : {&x, &y}) ok(cudaMalloc(reinterpret_cast<void**>(block), kBytes));
    ok(cudaHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, cudaHostAllocDefault));
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  ~EmulatedDevice() override {
    ok(cudaDeviceSynchronize());
    for (cudaStream_t stream : {first, second}) ok(cudaStreamDestroy(stream));
    for (float* block : {x, y}) ok(cudaFree(block));
    ok(cudaFreeHost(pinned));
    ok(cudaEventDestroy(event));
  }

  void fill_pinned(float value) const {
    for (size_t i = 0; i < kCount; ++i) pinned[i] = value;
  }
  // x = value everywhere, and nothing is under way.
  void fill_device(float* data, float value) const {
    fill_pinned(value);
    ok(cudaMemcpyAsync(data, pinned, kBytes, cudaMemcpyHostToDevice, first));
    ok(cudaStreamSynchronize(first));
  }
  float value_of(const float* data) const {
    ok(cudaMemcpyAsync(pinned, data, kBytes, cudaMemcpyDeviceToHost, first));
    ok(cudaStreamSynchronize(first));
    return pinned[kCount - 1];
  }
  // The number of seeds for which `run` returns another value than `expected`.
  static uint64_t wrong(float expected, const std::function<float()>& run) {
    uint64_t count = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Scheduler::instance().set_seed(seed);
      if (run() != expected) ++count;
    }
    return count;
  }

  cudaStream_t first = nullptr, second = nullptr;
  float *x = nullptr, *y = nullptr, *pinned = nullptr;
  cudaEvent_t event = nullptr;
};

bool failed(int status) {
  return status != 0;
}

TEST_F(EmulatedDevice, AMissingWaitGivesWrongNumbersUnderSomeSeed) {
  const auto run = [&](bool waits) {
    fill_device(x, 1);
    fill_device(y, 0);
    fill_pinned(2);
    ok(cudaMemcpyAsync(x, pinned, kBytes, cudaMemcpyHostToDevice, first));
    ok(cudaEventRecord(event, first));
    if (waits) ok(cudaStreamWaitEvent(second, event, 0));
    ok(cudaMemcpyAsync(y, x, kBytes, cudaMemcpyDeviceToDevice, second));
    ok(cudaDeviceSynchronize());
    return value_of(y);
  };
  EXPECT_EQ(wrong(2, [&] { return run(true); }), 0U);
  const uint64_t found = wrong(2, [&] { return run(false); });
  EXPECT_GT(found, kSeeds / 10);
  EXPECT_LT(found, kSeeds) << "no order in which it works";
}

TEST_F(EmulatedDevice, AStagingBufferThatIsReusedTooEarlyShows) {
  const auto run = [&](bool waits) {
    fill_pinned(1);
    ok(cudaMemcpyAsync(x, pinned, kBytes, cudaMemcpyHostToDevice, first));
    ok(cudaEventRecord(event, first));
    if (waits) ok(cudaEventSynchronize(event));
    fill_pinned(2);
    ok(cudaMemcpyAsync(y, pinned, kBytes, cudaMemcpyHostToDevice, first));
    ok(cudaDeviceSynchronize());
    return value_of(x);
  };
  EXPECT_EQ(wrong(1, [&] { return run(true); }), 0U);
  EXPECT_GT(wrong(1, [&] { return run(false); }), kSeeds / 4);
}

TEST_F(EmulatedDevice, PinnedMemoryThatIsReadTooSoonShows) {
  fill_device(x, 3);
  const auto run = [&](bool waits) {
    fill_pinned(0);
    ok(cudaMemcpyAsync(pinned, x, kBytes, cudaMemcpyDeviceToHost, first));
    if (waits) ok(cudaStreamSynchronize(first));
    const float value = pinned[0];
    ok(cudaStreamSynchronize(first));
    return value;
  };
  EXPECT_EQ(wrong(3, [&] { return run(true); }), 0U);
  EXPECT_GT(wrong(3, [&] { return run(false); }), kSeeds / 4);
}

// A device may also be faster than the host: what the host writes after the call may come too late.
TEST_F(EmulatedDevice, PinnedMemoryThatIsFilledAfterTheCopyShows) {
  const auto run = [&] {
    fill_pinned(1);
    ok(cudaMemcpyAsync(x, pinned, kBytes, cudaMemcpyHostToDevice, first));
    ok(cudaEventRecord(event, first));
    fill_pinned(2);
    return value_of(x);
  };
  EXPECT_GT(wrong(2, run), 0U);
}

TEST_F(EmulatedDevice, FreshMemoryHoldsNoNumber) {
  void* fresh = nullptr;
  ok(cudaMalloc(&fresh, kBytes));
  EXPECT_TRUE(std::isnan(value_of(static_cast<float*>(fresh))));
  ok(cudaFree(fresh));
}

TEST_F(EmulatedDevice, TheHostMayNotTouchItsMemory) {
  EXPECT_EXIT(static_cast<volatile float*>(x)[1] = 1, testing::ExitedWithCode(70),
              "the host: reads or writes device memory: byte 4 of the 1024 at");
  EXPECT_EXIT(static_cast<void>(static_cast<volatile float*>(x)[0]), testing::ExitedWithCode(70), "the host");
}

TEST_F(EmulatedDevice, MemoryThatIsUsedAfterItWasFreedShows) {
  const auto use = [&] {
    void* data = nullptr;
    ok(cudaMallocAsync(&data, kBytes, first));
    ok(cudaMemsetAsync(data, 0, kBytes, first));
    ok(cudaFreeAsync(data, first));
    ok(cudaMemcpyAsync(x, data, kBytes, cudaMemcpyDeviceToDevice, first));
    ok(cudaStreamSynchronize(first));
  };
  EXPECT_EXIT(use(), failed, "which were freed|use-after-poison");
  const auto free_twice = [&] {
    void* data = nullptr;
    ok(cudaMallocAsync(&data, kBytes, first));
    ok(cudaFreeAsync(data, first));
    if (cudaFreeAsync(data, first) == cudaErrorInvalidValue) refuse("cudaFreeAsync", "cudaErrorInvalidValue");
    ok(cudaStreamSynchronize(first));
  };
  EXPECT_EXIT(free_twice(), failed, "freed before|cudaErrorInvalidValue");
}

TEST_F(EmulatedDevice, MemoryInStreamOrderIsNotThereForOtherStreams) {
  const auto use = [&](bool waits) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Scheduler::instance().set_seed(seed);
      void* data = nullptr;
      ok(cudaMallocAsync(&data, kBytes, first));
      ok(cudaEventRecord(event, first));
      if (waits) ok(cudaStreamWaitEvent(second, event, 0));
      ok(cudaMemsetAsync(data, 0, kBytes, second));
      ok(cudaStreamSynchronize(second));
      ok(cudaFreeAsync(data, first));
    }
  };
  use(true);
  EXPECT_EXIT(use(false), failed, "has not allocated yet|which were freed|use-after-poison");
}

TEST_F(EmulatedDevice, WritesBesideABlockShow) {
  EXPECT_EQ(cudaMemcpyAsync(x, y, kBytes + 1, cudaMemcpyDeviceToDevice, first), cudaErrorInvalidValue);
  const auto write = [&](std::ptrdiff_t at) {
    submit(first, "a kernel", [place = reinterpret_cast<volatile char*>(x) + at] {
      *place = 1;
      return true;
    });
    ok(cudaFree(x));
  };
  EXPECT_EXIT(write(-1), failed, "beside|use-after-poison|where nothing is|beyond their end");
  EXPECT_EXIT(write(kBytes), failed, "beside|use-after-poison|beyond their end");
}

TEST_F(EmulatedDevice, AnEventThatWasNeverRecordedCountsAsReached) {
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  ok(cudaEventSynchronize(event));
  ok(cudaStreamWaitEvent(first, event, 0));
  ok(cudaStreamSynchronize(first));
}

// Work that another thread lets go on.
struct Gate {
  std::shared_ptr<std::atomic<bool>> open = std::make_shared<std::atomic<bool>>(false);
  void on(cudaStream_t stream) const {
    submit(stream, "a gate", [open = open] { return open->load(); });
  }
};

TEST_F(EmulatedDevice, AWaitHoldsForTheRecordOfItsTime) {
  const Gate gate;
  fill_device(x, 1);
  fill_device(y, 0);
  ok(cudaEventRecord(event, first));
  ok(cudaStreamWaitEvent(second, event, 0));
  gate.on(first);
  ok(cudaEventRecord(event, first));  // does not change the wait above
  ok(cudaMemcpyAsync(y, x, kBytes, cudaMemcpyDeviceToDevice, second));
  ok(cudaStreamSynchronize(second));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  *gate.open = true;
  ok(cudaEventSynchronize(event));
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(value_of(y), 1);
}

TEST_F(EmulatedDevice, AnEventMayBeDestroyedWhileAStreamWaitsForIt) {
  const Gate gate;
  fill_device(x, 1);
  cudaEvent_t short_lived = nullptr;
  ok(cudaEventCreate(&short_lived));
  gate.on(first);
  ok(cudaMemsetAsync(x, 0, kBytes, first));
  ok(cudaEventRecord(short_lived, first));
  ok(cudaStreamWaitEvent(second, short_lived, 0));
  ok(cudaEventDestroy(short_lived));
  ok(cudaMemcpyAsync(y, x, kBytes, cudaMemcpyDeviceToDevice, second));
  *gate.open = true;
  ok(cudaStreamSynchronize(second));
  EXPECT_EQ(value_of(y), 0);
  EXPECT_EXIT(cudaEventQuery(short_lived), testing::ExitedWithCode(70), "was destroyed");
}

TEST_F(EmulatedDevice, QueriesAnswerNotReadyAtTimesButGetOn) {
  uint64_t not_ready = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Scheduler::instance().set_seed(seed);
    for (int i = 0; i < 20; ++i) ok(cudaMemsetAsync(x, 0, kBytes, i % 2 == 0 ? first : second));
    ok(cudaEventRecord(event, first));
    while (cudaEventQuery(event) != cudaSuccess) ++not_ready;
  }
  EXPECT_GT(not_ready, kSeeds);
}

TEST_F(EmulatedDevice, TimesAreThoseOfEventsThatAreMadeForThem) {
  cudaEvent_t begin = nullptr, end = nullptr;
  for (cudaEvent_t* each : {&begin, &end}) ok(cudaEventCreate(each));
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorInvalidResourceHandle)
      << "not recorded";
  ok(cudaEventRecord(begin, first));
  submit(first, "a long kernel", [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return true;
  });
  const Gate gate;
  gate.on(first);
  ok(cudaEventRecord(end, first));
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorNotReady);
  *gate.open = true;
  ok(cudaEventSynchronize(end));
  ok(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 20);
  ok(cudaEventRecord(event, first));
  ok(cudaEventSynchronize(event));
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, event), cudaErrorInvalidResourceHandle)
      << "without times";
  for (cudaEvent_t each : {begin, end}) ok(cudaEventDestroy(each));
}

TEST_F(EmulatedDevice, WorkGoesOnWhileTheHostIsElsewhere) {
  const auto done = std::make_shared<std::atomic<bool>>(false);
  submit(first, "a kernel", [done] { return done->exchange(true) || true; });
  for (int i = 0; i < 10000 && !*done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(*done);
}

TEST_F(EmulatedDevice, ThreadsOfAKernelTouchMemoryAtTheSameTime) {
  constexpr size_t kBlocks = 2000;
  std::vector<float*> blocks(kBlocks);
  for (float*& block : blocks) ok(cudaMalloc(reinterpret_cast<void**>(&block), kBytes));
  for (int round = 0; round < 10; ++round) {
    submit(first, "a kernel", [&blocks] {
      std::atomic<int> ready = 0;
      const auto touch = [&](size_t half) {
        ++ready;
        while (ready < 2) std::this_thread::yield();
        for (size_t i = half; i < kBlocks; i += 2) blocks[i][kCount - 1] = 1;
      };
      const std::jthread other(touch, 1);
      touch(0);
      return true;
    });
    ok(cudaStreamSynchronize(first));
  }
  for (float* block : blocks) EXPECT_EQ(value_of(block), 1);
  for (float* block : blocks) ok(cudaFree(block));
}

TEST_F(EmulatedDevice, TheLegacyStreamWaitsForBlockingStreamsAlone) {
  cudaStream_t blocking = nullptr;
  ok(cudaStreamCreateWithPriority(&blocking, cudaStreamDefault, 0));
  const auto run = [&](cudaStream_t stream) {
    fill_device(x, 1);
    ok(cudaMemset(x, 0, kBytes));
    ok(cudaMemcpyAsync(y, x, kBytes, cudaMemcpyDeviceToDevice, stream));
    ok(cudaDeviceSynchronize());
    return value_of(y);
  };
  EXPECT_EQ(wrong(0, [&] { return run(blocking); }), 0U);
  EXPECT_GT(wrong(0, [&] { return run(first); }), kSeeds / 10);
  ok(cudaStreamDestroy(blocking));
}

TEST_F(EmulatedDevice, AStreamMayBeDestroyedBeforeItsWorkIsDone) {
  cudaStream_t short_lived = nullptr;
  ok(cudaStreamCreateWithPriority(&short_lived, cudaStreamNonBlocking, 0));
  fill_device(x, 1);
  ok(cudaMemsetAsync(x, 0, kBytes, short_lived));
  ok(cudaStreamDestroy(short_lived));
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(value_of(x), 0);
  EXPECT_EXIT(cudaStreamSynchronize(short_lived), testing::ExitedWithCode(70), "was destroyed");
}

TEST_F(EmulatedDevice, TooLittleMemoryIsAnError) {
  size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  void* data = &free;
  EXPECT_EQ(cudaMalloc(&data, free + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(data, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMallocAsync(&data, free + 1, first), cudaErrorMemoryAllocation);
  ok(cudaMalloc(&data, kBytes));
  size_t left = 0;
  ok(cudaMemGetInfo(&left, &total));
  EXPECT_EQ(left, free - kBytes);
  ok(cudaFree(data));
}

TEST_F(EmulatedDevice, WrongArgumentsAreRefused) {
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaEventRecord(nullptr, first), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(first, nullptr, 0), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaFree(x + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(x), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(nullptr, 0, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(x, pinned, kBytes, static_cast<cudaMemcpyKind>(9), first),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EXIT(cudaMemcpyAsync(x, pinned, kBytes, cudaMemcpyDeviceToHost, first), testing::ExitedWithCode(70),
              "do not match the direction");
  EXPECT_EXIT(cudaMemcpyAsync(x, x + 1, 8, cudaMemcpyDeviceToDevice, first), testing::ExitedWithCode(70),
              "overlap");
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidMemcpyDirection);
}

// An event belongs to the device on which it was made, and work to that of its stream.
TEST_F(EmulatedDevice, DevicesAreNotMixed) {
  ok(cudaSetDevice(1));
  cudaEvent_t other = nullptr;
  ok(cudaEventCreate(&other));
  EXPECT_EQ(cudaEventRecord(other, first), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(other, nullptr), cudaSuccess);
  ok(cudaStreamWaitEvent(first, other, 0));  // allowed
  ok(cudaEventDestroy(other));
  ok(cudaSetDevice(0));
  static_cast<void>(cudaGetLastError());
}

TEST_F(EmulatedDevice, PointersAreKnown) {
  const auto type = [](const void* data) {
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, data), cudaSuccess);
    return attributes.type;
  };
  int on_host = 0;
  EXPECT_EQ(type(x), cudaMemoryTypeDevice);
  EXPECT_EQ(type(x + kCount - 1), cudaMemoryTypeDevice);
  EXPECT_EQ(type(pinned + 1), cudaMemoryTypeHost);
  EXPECT_EQ(type(&on_host), cudaMemoryTypeUnregistered);
  EXPECT_TRUE(on_device(x, kBytes));
  EXPECT_FALSE(on_device(x, kBytes + 1));
  EXPECT_FALSE(on_device(pinned, 1));
}

}  // namespace
}  // namespace ripstop::emulated
