// Runs the rank tests on every rank of one world. Rank 0 reports; others speak up where something fails.
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "tests/parallel/rank_tests.h"

namespace ripstop {
namespace {

MpiWorld* world = nullptr;

class FailurePrinter final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", static_cast<int>(world->communicator().rank()),
                   result.file_name(), result.line_number(), result.message());
  }
};

int run_tests() {
  MpiWorld mpi({.deadline_seconds = 60, .piece_bytes = kPieceBytes});
  world = &mpi;
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

}  // namespace ripstop

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(catch_exceptions, false);  // they would leave the other ranks waiting
  try {
    return ripstop::run_tests();
  } catch (const ripstop::Error& error) {
    std::fprintf(stderr, "FATAL %s\n", error.what());
    _exit(static_cast<int>(error.code()));
  }
}
