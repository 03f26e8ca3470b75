// Runs the rank tests on every rank of one world. Rank 0 reports; the others print only failures.
// --device=cuda: tests that ask for test_device() get a GPU; ends with code 77 if there is none.
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "model/device/cuda_machine.h"
#include "parallel/rank_device.h"
#include "tests/parallel/rank_tests.h"

namespace ripstop {
namespace {

MpiWorld* world = nullptr;
Device device;
constexpr int kSkipped = 77;

class FailurePrinter final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", static_cast<int>(world->communicator().rank()),
                   result.file_name(), result.line_number(), result.message());
  }
};

int run_tests(bool on_gpu) {
  MpiWorld mpi({.deadline_seconds = 60, .piece_bytes = kPieceBytes});
  world = &mpi;
  if (on_gpu && cuda_device_count() == 0) {
    if (mpi.communicator().rank() == 0) std::printf("no GPU: %s\n", look_at_cuda().problem.c_str());
    return kSkipped;
  }
  if (on_gpu) device = choose_cuda_device(mpi);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (mpi.communicator().rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  int failed = 1;
  mpi.run([&] {
    failed = RUN_ALL_TESTS();
    return ExitCode::kOk;
  });
  for (const std::string& other : mpi.communicator().all_gather_text(std::to_string(failed)))
    if (other != "0") failed = 1;
  return failed;
}

}  // namespace

MpiWorld& test_world() {
  return *world;
}

const Device& test_device() {
  return device;
}

}  // namespace ripstop

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(catch_exceptions, false);  // they would leave the other ranks waiting
  try {
    const bool on_gpu = argc == 2 && std::string_view(argv[1]) == "--device=cuda";
    if (argc > 1 && !on_gpu) {
      std::fprintf(stderr, "unknown argument %s; expected --device=cuda or none\n", argv[1]);
      return 64;
    }
    return ripstop::run_tests(on_gpu);
  } catch (const ripstop::Error& error) {
    std::fprintf(stderr, "FATAL %s\n", error.what());
    _exit(static_cast<int>(error.code()));
  }
}
