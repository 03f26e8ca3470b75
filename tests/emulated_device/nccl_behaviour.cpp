#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <string_view>

#include "tests/emulated_device/nccl_state.h"
#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {
namespace {

std::string_view setting(const char* name, const char* otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : text;
}

NcclBehaviour read_behaviour() {
  NcclBehaviour result;
  const std::string_view version = setting("RIPSTOP_EMULATED_NCCL", "2.28");
  if (version == "2.19")
    result.version = 21903;
  else if (version == "2.21")
    result.version = 22105;
  else if (version == "2.27")
    result.version = 22707;
  else if (version != "2.28")
    refuse("RIPSTOP_EMULATED_NCCL", fmt::format("'{}', expected 2.19, 2.21, 2.27 or 2.28", version));
  result.one_job_a_group = result.version >= 22602;
  result.has_windows = result.version >= 22703;
  result.late_windows = result.version >= 22800;
  result.symmetric = setting("RIPSTOP_EMULATED_NCCL_WINDOWS", "1") != "0";
  result.switches_add = setting("NCCL_NVLS_ENABLE", "2") != "0";
  result.multicast_fails = result.switches_add && setting("RIPSTOP_EMULATED_NCCL_WINDOWS", "1") == "broken";
  result.seed = static_cast<uint64_t>(from_environment("RIPSTOP_EMULATED_SEED", 0));
  return result;
}

struct Warning {
  std::mutex mutex;
  std::string text;
};
// Never destroyed: threads of jobs may still warn when the process ends.
Warning& warning() {
  static auto* const kept = new Warning;
  return *kept;
}

}  // namespace

const NcclBehaviour& behaviour() {
  static const NcclBehaviour read = read_behaviour();
  return read;
}

uint64_t draw(uint64_t end) {
  static auto* const mutex = new std::mutex;
  static auto* const engine =
      new std::mt19937_64(behaviour().seed * 1000003 + static_cast<uint64_t>(rank_of_process()));
  const std::lock_guard lock(*mutex);
  return (*engine)() % end;
}

ncclResult_t warn(ncclResult_t result, const std::string& text) {
  const std::lock_guard lock(warning().mutex);
  warning().text = text;
  return result;
}

std::string last_warning() {
  const std::lock_guard lock(warning().mutex);
  return warning().text;
}

}  // namespace ripstop::emulated
