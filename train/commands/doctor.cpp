// ripstop doctor: shows the build and the machine; under a launcher all nodes, and the speed of ranks and
// links.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>

#include "data/text/json_struct.h"
#include "model/core/number.h"
#include "model/device/cuda_machine.h"
#include "parallel/mpi_world.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/commands/end_process.h"
#include "train/commands/rank_report.h"
#include "train/machine/device_choice.h"
#include "train/machine/machine.h"
#include "train/machine/rank_speed.h"
#include "train/machine/version.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

using Json = FieldWriter::Json;

// One node of the launch.
struct Node {
  int64_t ranks = 0;
  Json machine;                       ///< as_json(Machine) of its lowest rank
  std::vector<std::string> problems;  ///< of all its ranks, each text once
};

// The launch as rank 0 reports it.
struct Report {
  int64_t ranks = 1;
  std::string mpi;
  std::vector<Node> nodes;
  std::optional<LinkSpeed> inside_node;
  std::optional<LinkSpeed> between_nodes;
  std::optional<RankReport> rank_report;  ///< nullopt: there is one rank
};

// Scripts rely on the keys. Ranks send this object to rank 0.
Json as_json(const Machine& machine) {
  Json environment = Json::object();
  for (const auto& [name, value] : machine.environment) environment[name] = value;
  const auto or_null = [](const auto& value) { return FieldWriter::to_json(value); };
  return {{"host", machine.host},
          {"system", machine.system},
          {"processor", machine.processor},
          {"instruction_set", machine.instruction_set},
          {"fast_bfloat16", machine.fast_bfloat16},
          {"cores", machine.cores},
          {"cores_allowed", machine.cores_allowed},
          {"cores_quota", or_null(machine.cores_quota)},
          {"memory_bytes", machine.memory_bytes},
          {"memory_available_bytes", machine.memory_available_bytes},
          {"memory_limit_bytes", or_null(machine.memory_limit_bytes)},
          {"memory_limit_used_bytes", or_null(machine.memory_limit_used_bytes)},
          {"shared_memory_free_bytes", or_null(machine.shared_memory_free_bytes)},
          {"disk_free_bytes", or_null(machine.disk_free_bytes)},
          {"open_files_limit", or_null(machine.open_files_limit)},
          {"environment", environment}};
}

Json as_json(const CudaMachine& cuda) {
  Json json{{"architectures", cuda.architectures}, {"problem", cuda.problem}};
  json["libraries"] = Json::array();
  for (const CudaLibrary& each : cuda.libraries)
    json["libraries"].push_back(
        {{"name", each.name}, {"oldest", each.oldest}, {"built", each.built}, {"found", each.found}});
  json["gpus"] = Json::array();
  for (const CudaGpu& gpu : cuda.gpus)
    json["gpus"].push_back({{"name", gpu.name},
                            {"identity", gpu.identity},
                            {"memory_bytes", gpu.memory_bytes},
                            {"compute_capability", fmt::format("{}.{}", gpu.major, gpu.minor)},
                            {"multiprocessors", gpu.multiprocessors},
                            {"supported", gpu.is_supported()}});
  return json;
}

// The driver, the GPUs and the libraries, NCCL included.
CudaMachine read_cuda_and_nccl() {
  CudaMachine cuda = look_at_cuda();
  if (cuda.built) cuda.libraries.push_back(nccl_library());
  return cuda;
}

// Problems with CUDA that make a run on GPUs fail. None without a GPU: such a node computes on the CPU.
std::vector<std::string> cuda_problems(const CudaMachine& cuda) {
  std::vector<std::string> found;
  if (cuda.gpus.empty()) return found;
  for (const CudaLibrary& each : cuda.libraries)
    if (const std::string text = each.complaint(); !text.empty()) found.push_back(text);
  for (const CudaGpu& gpu : cuda.gpus)
    if (!gpu.is_supported())
      found.push_back(fmt::format("{} has compute capability {}.{}, ripstop needs {}.0", gpu.name, gpu.major,
                                  gpu.minor, CudaGpu::kOldestMajor));
  return found;
}

// The number of threads of a rank: $OMP_NUM_THREADS, else the cores that it may use.
int64_t threads_of_rank(const Machine& machine) {
  const char* set = std::getenv("OMP_NUM_THREADS");
  const std::string_view text = set != nullptr ? set : "";
  // The variable may be a list, a number for each level of nested parallelism: "4,2".
  const int64_t threads = parse_whole_number(text.substr(0, text.find(','))).value_or(0);
  return threads > 0 ? threads : std::max<int64_t>(1, machine.cores_allowed);
}

// The nodes, each described by its lowest rank. Problems come from all ranks: the launcher may give the ranks
// of a node different cores. Collective.
std::vector<Node> describe_nodes(MpiWorld& world) {
  Communicator& ranks = world.communicator();
  const Machine machine = read_machine();
  const CudaMachine cuda = read_cuda_and_nccl();
  std::vector<std::string> found =
      machine_problems(machine, ranks.size(), world.ranks_here(), threads_of_rank(machine));
  for (std::string& text : cuda_problems(cuda)) found.push_back(std::move(text));
  Json own{{"machine", as_json(machine)}, {"complaints", found}};
  if (cuda.built) own["machine"]["cuda"] = as_json(cuda);
  const std::vector<std::string> texts = ranks.all_gather_text(text_of_json(own));
  std::map<int64_t, Node> nodes;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const Json rank_json = Json::parse(texts[rank]);
    Node& of_rank = nodes[world.places()[rank].node];
    if (of_rank.ranks++ == 0) of_rank.machine = rank_json.at("machine");  // the node's lowest rank
    for (const std::string text : rank_json.at("complaints"))
      if (std::find(of_rank.problems.begin(), of_rank.problems.end(), text) == of_rank.problems.end())
        of_rank.problems.push_back(text);
  }
  std::vector<Node> result;
  for (auto& [lowest_rank, each] : nodes) result.push_back(std::move(each));
  for (Node& each : result)
    // train refuses such nodes: their results would differ by rounding.
    if (each.machine.at("instruction_set") != result.front().machine.at("instruction_set"))
      each.problems.push_back("another instruction set than the first node's: these cannot train together");
  return result;
}

// The larger latency and the smaller bandwidth of two measurements.
LinkSpeed slower(const LinkSpeed& a, const LinkSpeed& b) {
  return {std::max(a.latency_seconds, b.latency_seconds), std::min(a.bytes_per_second, b.bytes_per_second)};
}

// The ranks of one `color` form a ring; measures all rings at once. Returns the worst latency and bandwidth
// of any ring; nullopt if every ring has one rank. Collective.
std::optional<LinkSpeed> measure_groups(Communicator& world, int64_t color, const std::string& name) {
  const std::unique_ptr<Communicator> group = world.split(color, world.rank(), name);
  std::optional<LinkSpeed> speed;
  if (group->size() > 1) speed = measure_ring(*group);
  // A rank that is alone in its ring takes part in the collective with an empty text.
  const std::vector<std::string> texts = world.all_gather_text(
      speed ? fmt::format("{} {}", speed->latency_seconds, speed->bytes_per_second) : std::string());
  std::optional<LinkSpeed> slowest;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    char* rest = nullptr;
    const double latency = std::strtod(text.c_str(), &rest);
    const LinkSpeed each{latency, std::strtod(rest, nullptr)};
    slowest = slowest ? slower(*slowest, each) : each;
  }
  return slowest;
}

Report examine(MpiWorld& world, const std::string& config_file) {
  Communicator& ranks = world.communicator();
  Report report;
  report.ranks = ranks.size();
  report.mpi = world.library();
  report.nodes = describe_nodes(world);
  if (ranks.size() == 1) return report;
  const std::vector<RankHost>& places = world.places();
  const auto own = static_cast<size_t>(ranks.rank());
  const int64_t place_in_node =
      std::count_if(places.begin(), places.begin() + static_cast<ptrdiff_t>(own),
                    [&](const RankHost& place) { return place.node == places[own].node; });
  report.inside_node = measure_groups(ranks, places[own].node, "node");
  // A ring of the ranks with one place in their nodes: each of its links connects two nodes.
  report.between_nodes = measure_groups(ranks, place_in_node, "nodes");
  std::string note;
  report.rank_report = report_ranks(world, choose_device(DeviceChoice::kAuto, world, note), config_file);
  return report;
}

// null for an absent measurement.
Json as_json(const std::optional<LinkSpeed>& speed) {
  if (!speed) return nullptr;
  return {{"latency_seconds", speed->latency_seconds}, {"bytes_per_second", speed->bytes_per_second}};
}

std::vector<std::string> back_ends() {
  return cuda_is_built() ? std::vector<std::string>{"cpu", "cuda"} : std::vector<std::string>{"cpu"};
}

void print_json(const Report& report) {
  Json document{{"version", version()}, {"commit", git_commit()}, {"compiler", compiler()}};
  for (const Library& library : libraries())
    document["libraries"][std::string(library.name)] = library.version;
  document["back_ends"] = back_ends();
  document["mpi"] = report.mpi;
  document["ranks"] = report.ranks;
  document["nodes"] = Json::array();
  for (const Node& node : report.nodes) {
    Json json = node.machine;
    json["ranks"] = node.ranks;
    json["complaints"] = node.problems;
    document["nodes"].push_back(json);
  }
  document["inside_node"] = as_json(report.inside_node);
  document["between_nodes"] = as_json(report.between_nodes);
  if (report.rank_report) document.update(rank_report_json(*report.rank_report));
  fmt::print("{}\n", text_of_json(document, 2));
}

// `cuda`: as_json(CudaMachine), which may come from another rank.
void print_cuda(const Json& cuda) {
  fmt::print("  cuda        kernels for sm_ {}\n", cuda.at("architectures").get<std::string>());
  for (const Json& each : cuda.at("libraries")) {
    const auto found = each.at("found").get<std::string>();
    fmt::print("    {:<18}{}  (built with {}, works from {})\n", each.at("name").get<std::string>(),
               found.empty() ? "not found" : found, each.at("built").get<std::string>(),
               each.at("oldest").get<std::string>());
  }
  for (const Json& gpu : cuda.at("gpus"))
    fmt::print("  gpu         {}, {}, compute capability {}, {} multiprocessors\n",
               gpu.at("name").get<std::string>(), bytes_text(gpu.at("memory_bytes").get<int64_t>()),
               gpu.at("compute_capability").get<std::string>(), gpu.at("multiprocessors").get<int>());
  if (cuda.at("gpus").empty()) fmt::print("  gpu         none: {}\n", cuda.at("problem").get<std::string>());
}

std::string free_text(const Json& bytes) {
  return bytes.is_null() ? "unknown" : bytes_text(bytes.get<int64_t>()) + " free";
}

void print_node(const Node& node) {
  const Json& machine = node.machine;
  fmt::print("\n{}  {}\n", machine.at("host").get<std::string>(), counted(node.ranks, "rank"));
  fmt::print("  system      {}\n", machine.at("system").get<std::string>());
  fmt::print("  processor   {}\n", machine.at("processor").get<std::string>());
  fmt::print("  kernels     {}, bfloat16 {}\n", machine.at("instruction_set").get<std::string>(),
             machine.at("fast_bfloat16").get<bool>() ? "in hardware" : "not in hardware");
  fmt::print("  cores       {}, {} allowed for a rank", machine.at("cores").get<int64_t>(),
             machine.at("cores_allowed").get<int64_t>());
  if (!machine.at("cores_quota").is_null())
    fmt::print(", control group grants {:.1f}", machine.at("cores_quota").get<double>());
  fmt::print("\n  memory      {}, {} available", bytes_text(machine.at("memory_bytes").get<int64_t>()),
             bytes_text(machine.at("memory_available_bytes").get<int64_t>()));
  if (!machine.at("memory_limit_bytes").is_null())
    fmt::print(", control group limits to {}", bytes_text(machine.at("memory_limit_bytes").get<int64_t>()));
  fmt::print("\n");
  if (machine.contains("cuda")) print_cuda(machine.at("cuda"));
  fmt::print("  /dev/shm    {}\n", free_text(machine.at("shared_memory_free_bytes")));
  fmt::print("  disk here   {}\n", free_text(machine.at("disk_free_bytes")));
  for (const auto& [name, value] : machine.at("environment").items())
    fmt::print("  {}={}\n", name, value.get<std::string>());
  for (const std::string& problem : node.problems) fmt::print("  ! {}\n", problem);
}

void print_speed(const char* where, const std::optional<LinkSpeed>& speed) {
  if (speed)
    fmt::print("{:<18}{:.1f} us latency, {:.2f} GB/s a rank, slowest ring\n", where,
               1e6 * speed->latency_seconds, 1e-9 * speed->bytes_per_second);
}

void print_for_people(const Report& report) {
  fmt::print("ripstop {} ({}), {}\n", version(), git_commit(), compiler());
  fmt::print("back ends: {}\n", back_ends().size() > 1 ? "cpu, cuda" : "cpu (no cuda in this build)");
  for (const Library& library : libraries()) fmt::print("  {:<16}{}\n", library.name, library.version);
  fmt::print("\n{} on {}, MPI at run time: {}\n", counted(report.ranks, "rank"),
             counted(std::ssize(report.nodes), "node"), report.mpi);
  for (const Node& node : report.nodes) print_node(node);
  if (report.inside_node || report.between_nodes) fmt::print("\n");
  print_speed("inside a node", report.inside_node);
  print_speed("between nodes", report.between_nodes);
  if (report.rank_report) fmt::print("\n{}", rank_report_text(*report.rank_report));
}

ExitCode doctor(bool json, const std::string& config_file) {
  MpiWorld world(world_options("doctor"));
  return world.run([&] {
    const Report report = examine(world, config_file);
    if (world.communicator().rank() != 0) return ExitCode::kOk;
    if (json)
      print_json(report);
    else
      print_for_people(report);
    return ExitCode::kOk;
  });
}

}  // namespace

void add_doctor(CommandLine& line) {
  Verb verb = line.verb("doctor", "what was built, what this machine has");
  const auto json = std::make_shared<bool>(false);
  const auto config_file = std::make_shared<std::string>();
  verb.option("--config", *config_file, "with several ranks: a file that must be the same for all of them");
  verb.flag("--json", *json, "one JSON document");
  verb.add_details(
      "With several ranks it measures products, memory and links of each, names those that are slower than "
      "0.8 of the\nmedian with the option that leaves their nodes out of a job, and ranks whose program or "
      "config differs.");
  verb.set_example(
      "ripstop doctor\n  mpirun -n 4 ripstop doctor     measures between the ranks as well\n"
      "  srun ripstop doctor --config mine.toml     before a long run: slow nodes, other binaries, other "
      "configs");
  verb.set_action([json, config_file] { return doctor(*json, *config_file); });
}

}  // namespace ripstop
