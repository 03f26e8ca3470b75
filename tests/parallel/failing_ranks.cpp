// A program that fails in the way that its first argument names, for failures_test.sh.
//   failing_ranks throw|throw_all|stop|busy|kill|wait DEADLINE
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "parallel/mpi_world.h"

namespace ripstop {
namespace {

void go_wrong(const std::string& how, int64_t rank) {
  if (how == "throw_all" || (how == "throw" && rank == 1))
    throw Error(ExitCode::kStorage, "cannot write the checkpoint");
  if (rank != 1) return;
  if (how == "stop") raise(SIGSTOP);
  if (how == "kill") raise(SIGKILL);
  if (how == "busy") std::this_thread::sleep_for(std::chrono::seconds(30));
}

ExitCode train(MpiWorld& world, const std::string& how) {
  Communicator& ranks = world.communicator();
  if (how == "wait") std::fprintf(stderr, "pid %d\n", static_cast<int>(getpid()));
  const Stream stream(Device::cpu());
  std::vector<float> own(100000), all(own.size() * static_cast<size_t>(ranks.size()));
  const auto tensor = [](std::vector<float>& x) {
    return Tensor{x.data(), DType::kFloat32, Shape{static_cast<int64_t>(x.size())}, Device::cpu()};
  };
  for (int64_t step = 1; how == "wait" || step <= 20; ++step) {
    world.set_step(step);
    if (step == 15) go_wrong(how, ranks.rank());
    ranks.all_gather(stream, tensor(own), tensor(all)).wait();
  }
  return ExitCode::kOk;
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  using ripstop::Error;
  if (argc != 3) return 64;
  int rank = 0;
  try {
    ripstop::MpiWorld world({.deadline_seconds = std::atof(argv[2])});
    rank = static_cast<int>(world.communicator().rank());
    return static_cast<int>(world.run([&] { return ripstop::train(world, argv[1]); }));
  } catch (const Error& error) {
    std::fprintf(stderr, "FATAL code=%d rank=%d %s\n", static_cast<int>(error.code()), rank, error.what());
    std::this_thread::sleep_for(std::chrono::duration<double>(ripstop::MpiWorld::kSecondsToEnd));
    _exit(static_cast<int>(error.code()));
  }
}
