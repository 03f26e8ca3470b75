// A program that fails in the way that its first argument names, for failures_test.sh.
//   failing_ranks WAY DEADLINE [DIRECTORY]
// WAY: throw, throw_all, stop, stop_last, busy, receive, storage, disk, kill, wait, never, stop_before,
// stop_in_start, or, on a pipeline of all ranks, stop_stage or busy_stage
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "parallel/device_mesh.h"
#include "parallel/launch_environment.h"
#include "parallel/mpi_world.h"

namespace ripstop {
namespace {

// Keeps the main thread in a system call that no signal interrupts, as a disk that does not answer does.
void sleep_as_for_a_disk() {
  if (vfork() != 0) return;  // only when the child has ended
  ::usleep(8'000'000);
  _exit(0);
}

void go_wrong(MpiWorld& world, const std::string& how, int64_t rank) {
  if (how == "storage") world.set_deadline(1);
  if (how == "throw_all" || (how == "throw" && rank == 1))
    throw Error(ExitCode::kStorage, "cannot write the checkpoint");
  if (rank != 1) return;
  if (how == "stop") raise(SIGSTOP);
  if (how == "kill") raise(SIGKILL);
  if (how == "disk") sleep_as_for_a_disk();
  if (how == "storage") {
    const StorageWait wait(world);
    std::this_thread::sleep_for(std::chrono::seconds(5));
  }
  if (how == "busy" || how == "receive") std::this_thread::sleep_for(std::chrono::seconds(1000));
}

// Rank 1 does not come to the start, or stops there.
void go_wrong_at_start(const std::string& how, const std::string& directory) {
  if (launch_rank() != 1) return;
  if (how == "never") std::this_thread::sleep_for(std::chrono::seconds(1000));
  if (how == "stop_before") raise(SIGSTOP);
  if (how != "stop_in_start") return;
  // The others wait for this rank inside MPI_Init, or in the first collective.
  std::thread([directory] {
    namespace fs = std::filesystem;
    for (std::error_code error;;) {
      fs::recursive_directory_iterator entry(directory, error);
      for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error))
        if (entry->path().filename().string().starts_with("1@")) kill(getpid(), SIGSTOP);
    }
  }).detach();
}

[[noreturn]] void end(const Error& error, int64_t rank) {
  std::fprintf(stderr, "FATAL code=%d rank=%d %s\n", static_cast<int>(error.code()), static_cast<int>(rank),
               error.what());
  std::this_thread::sleep_for(std::chrono::duration<double>(MpiWorld::kSecondsToEnd));
  _exit(static_cast<int>(error.code()));
}

// The last stage waits for the one before it, which waits for the first.
void go_wrong_in_stage(MpiWorld& world, const std::string& how, int64_t stage) {
  if (how == "stop_stage" && stage == 1) raise(SIGSTOP);
  if (how == "busy_stage" && stage == 1) world.set_deadline(1000);
  if (how == "busy_stage" && stage == 0) std::this_thread::sleep_for(std::chrono::seconds(1000));
}

// Each rank is a stage, and sends each micro-batch on to the next one.
ExitCode train_stages(MpiWorld& world, const std::string& how) {
  const DeviceMesh mesh(world, {.fsdp = 1, .pipeline = world.communicator().size()});
  const Stream stream(Device::cpu());
  std::vector<float> own(100000);
  const Tensor boundary{own.data(), DType::kFloat32, Shape{std::ssize(own)}, Device::cpu()};
  const PipelineGroups& links = mesh.links();
  for (int64_t step = 1; step <= 20; ++step) {
    mesh.set_step(step);
    for (int64_t micro = 0; micro < 8; ++micro) {
      mesh.set_micro_batch(mesh.coordinates().pipeline, micro);
      if (step == 15 && micro == 7) go_wrong_in_stage(world, how, mesh.coordinates().pipeline);
      if (links.activations_in != nullptr)
        links.activations_in->start_receive(stream, boundary, 0, nullptr).wait();
      if (links.activations_out != nullptr) links.activations_out->start_send(stream, boundary, 1).wait();
    }
    mesh.set_micro_batch();
  }
  return ExitCode::kOk;
}

ExitCode train(MpiWorld& world, const std::string& how) {
  if (how.ends_with("_stage")) return train_stages(world, how);
  Communicator& ranks = world.communicator();
  if (how == "wait") std::fprintf(stderr, "pid %d\n", static_cast<int>(getpid()));
  const Stream stream(Device::cpu());
  std::vector<float> own(100000), all(own.size() * static_cast<size_t>(ranks.size()));
  const auto tensor = [](std::vector<float>& x) {
    return Tensor{x.data(), DType::kFloat32, Shape{static_cast<int64_t>(x.size())}, Device::cpu()};
  };
  for (int64_t step = 1; how == "wait" || step <= 20; ++step) {
    world.set_step(step);
    if (step == 15) go_wrong(world, how, ranks.rank());
    if (step == 15 && how == "receive") ranks.start_receive(stream, tensor(own), 1, nullptr).wait();
    ranks.all_gather(stream, tensor(own), tensor(all)).wait();
  }
  if (how == "stop_last" && ranks.rank() == 1) raise(SIGSTOP);
  return ExitCode::kOk;
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  using ripstop::Error;
  if (argc < 3 || argc > 4) return 64;
  const std::string how = argv[1], directory = argc > 3 ? argv[3] : "";
  try {
    ripstop::go_wrong_at_start(how, directory);
    ripstop::MpiWorld world(
        {.deadline_seconds = std::atof(argv[2]),
         .directory = directory,
         .end_process = [](const Error& error) { ripstop::end(error, ripstop::launch_rank()); }});
    return static_cast<int>(world.run([&] { return ripstop::train(world, how); }));
  } catch (const Error& error) {
    ripstop::end(error, ripstop::launch_rank());
  }
}
