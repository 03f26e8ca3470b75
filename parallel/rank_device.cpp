#include "parallel/rank_device.h"

#include <cstdlib>
#include <map>
#include <utility>

#include "model/device/cuda_machine.h"
#include "parallel/agreement.h"

namespace ripstop {
int gpu_of_local_rank(int64_t rank, int visible) {
  return visible <= 1 ? 0 : static_cast<int>(rank % visible);
}

std::optional<std::pair<size_t, size_t>> ranks_of_one_gpu(const std::vector<RankHost>& places,
                                                          const std::vector<std::string>& addresses) {
  std::map<std::pair<int64_t, std::string>, size_t> first;
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    const auto [found, is_first] = first.try_emplace({places[rank].node, addresses[rank]}, rank);
    if (!is_first) return std::pair(found->second, rank);
  }
  return std::nullopt;
}

void require_launch_order(const std::vector<std::string>& versions) {
  constexpr const char* kOldest = "2.26";
  for (size_t rank = 0; rank < versions.size(); ++rank)
    if (version_is_older(versions[rank], kOldest))
      throw Error(ExitCode::kResources,
                  fmt::format("a pipeline on GPUs needs NCCL {}, rank {} has {}: older ones do not keep the "
                              "order of messages and collectives",
                              kOldest, rank, versions[rank]),
                  fmt::format("use NCCL {} or a later one, or mesh.pipeline = 1", kOldest));
}

std::string launch_order_note(const std::string& driver) {
  constexpr const char* kOldest = "12.3";
  if (driver.empty() || !version_is_older(driver, kOldest)) return "";
  return fmt::format(
      "the driver is for CUDA {}: before {} NCCL runs the messages of a pipeline and other "
      "collectives one after another",
      driver, kOldest);
}

Device choose_cuda_device(MpiWorld& world) {
  const CudaMachine machine = look_at_cuda();
  constexpr const char* kHint =
      "`ripstop doctor` shows what was found; run.device = \"cpu\" computes without a GPU";
  for (const CudaLibrary& library : machine.libraries)
    if (const std::string complaint = library.complaint(); !complaint.empty() && !machine.gpus.empty())
      throw Error(ExitCode::kResources, complaint, kHint);
  if (machine.gpus.empty()) throw Error(ExitCode::kResources, "no GPU: " + machine.problem, kHint);
  const int index = gpu_of_local_rank(world.local_rank(), static_cast<int>(machine.gpus.size()));
  const CudaGpu& gpu = machine.gpus[static_cast<size_t>(index)];
  if (!gpu.is_supported())
    throw Error(ExitCode::kResources,
                fmt::format("{} has compute capability {}.{}, ripstop needs {}.0", gpu.name, gpu.major,
                            gpu.minor, CudaGpu::kOldestMajor),
                kHint);
  return Device::cuda(index);
}

namespace {

// Whether two ranks share a GPU. Throws if so, unless RIPSTOP_SHARE_GPU allows it: host messages are slow.
bool refuse_shared_gpu(MpiWorld& world, const std::vector<std::string>& taken) {
  const auto shared = ranks_of_one_gpu(world.places(), taken);
  if (!shared) return false;
  const char* asked = std::getenv("RIPSTOP_SHARE_GPU");
  // Rank 0's value decides, because some launchers do not set the variable on all nodes.
  if (of_rank_0<int64_t>(world.communicator(), asked != nullptr && asked[0] == '1' ? 1 : 0) == 1) return true;
  const auto [first, second] = *shared;
  throw Error(ExitCode::kResources,
              fmt::format("ranks {} and {} on {} would share the GPU at {} (parts of one card, MIG, count as "
                          "one): NCCL needs a GPU for each rank",
                          first, second, world.places()[second].host, taken[second]),
              "start one rank for each GPU; for tests, RIPSTOP_SHARE_GPU=1 exchanges through host memory");
}

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(MpiWorld& world, const Device& device,
                                                       bool has_pipeline) {
  Communicator& all = world.communicator();
  if (device.kind != DeviceKind::kCuda || all.size() == 1) return nullptr;
  const std::vector<CudaGpu> gpus = look_at_cuda().gpus;
  // Compare addresses, because each rank's index 0 may be a different GPU.
  const std::vector<std::string> taken = all.all_gather_text(gpus.at(static_cast<size_t>(device.index)).bus);
  const bool shared = refuse_shared_gpu(world, taken);
  if (has_pipeline && !shared) require_launch_order(all.all_gather_text(nccl_library().found));
  std::unique_ptr<Communicator> host = all.split(0, all.rank(), all.name());
  return shared ? make_staged_communicator(std::move(host), device)
                : make_nccl_communicator(std::move(host), device);
}

}  // namespace ripstop
