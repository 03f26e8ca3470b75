// ripstop doctor: the build and the machine; with several ranks all nodes, and the speed of ranks and links.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "data/files/hash.h"
#include "data/files/whole_file.h"
#include "data/process/shell_word.h"
#include "data/text/json_reader.h"
#include "data/text/json_struct.h"
#include "model/device/cuda_machine.h"
#include "model/kernels/cpu/processor.h"
#include "parallel/agreement.h"
#include "parallel/mpi_world.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/commands/end_failed.h"
#include "train/machine/device_choice.h"
#include "train/machine/energy.h"
#include "train/machine/machine.h"
#include "train/machine/rank_speed.h"
#include "train/machine/slow_ranks.h"
#include "train/machine/version.h"
#include "train/plan/measured_rates.h"
#include "train/report/human_text.h"
#include "train/report/live_line.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

using Json = FieldWriter::Json;

struct Node {
  int64_t ranks = 0;
  Json machine;                       ///< as_json(Machine) of the node's lowest rank, with "cuda"
  std::vector<std::string> problems;  ///< problems of all ranks of the node, without duplicates
  NodePower power;
};

// The speeds of the ranks, and whether all have the same program, MPI and config.
struct RankReport {
  std::vector<std::string> hosts;  ///< host of each rank
  std::vector<RankSpeed> speeds;   ///< speed of each rank
  std::vector<SlowRankFound> slow;
  std::string exclude;                   ///< sbatch's option to leave out slow hosts; "" if no host is slow
  std::vector<std::string> differences;  ///< "program differs between ranks: ..."; empty: all are alike
};

struct Report {
  int64_t ranks = 1;
  std::string mpi;
  std::vector<Node> nodes;
  LinkRates links;                        ///< through host memory
  std::optional<RankReport> rank_report;  ///< nullopt with only one rank
};

// A machine in the document of --json. Scripts rely on its keys. Ranks also send it to each other.
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

// Problems of a run on the GPUs. A node without GPUs has no problem, because it computes on the CPU.
std::vector<std::string> cuda_problems(const CudaMachine& cuda) {
  std::vector<std::string> found;
  if (cuda.gpus.empty()) return found;
  for (const CudaLibrary& each : cuda.libraries)
    if (const std::string text = each.complaint(); !text.empty()) found.push_back(text);
  for (const CudaGpu& gpu : cuda.gpus) {
    for (std::string& text : gpu_complaints(gpu)) found.push_back(std::move(text));
    if (!gpu.is_supported())
      found.push_back(fmt::format("{} has compute capability {}.{}, ripstop needs {}.0", gpu.name, gpu.major,
                                  gpu.minor, CudaGpu::kOldestMajor));
  }
  return found;
}

// The nodes of the launch. Each node has the machine of its lowest rank, and the problems of all its ranks,
// because the launcher may give the ranks different cores. Collective.
std::vector<Node> describe_nodes(MpiWorld& world) {
  Communicator& ranks = world.communicator();
  const Machine machine = read_machine();
  CudaMachine cuda = look_at_cuda();
  if (cuda_is_built()) cuda.libraries.push_back(nccl_library());
  std::vector<std::string> found = machine_problems(machine, ranks.size(), world.ranks_here(), cpu_threads());
  for (std::string& text : cuda_problems(cuda)) found.push_back(std::move(text));
  Json own{{"machine", as_json(machine)}, {"complaints", found}};
  if (cuda_is_built()) own["machine"]["cuda"] = as_json(cuda);
  const std::vector<std::string> texts = ranks.all_gather_text(text_of_json(own));
  std::map<int64_t, Node> nodes;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const Json rank_json = Json::parse(texts[rank]);
    Node& of_rank = nodes[world.places()[rank].node];
    if (of_rank.ranks++ == 0) of_rank.machine = rank_json.at("machine");
    for (const std::string text : rank_json.at("complaints"))
      if (std::ranges::count(of_rank.problems, text) == 0) of_rank.problems.push_back(text);
  }
  std::vector<Node> result;
  for (auto& [lowest_rank, each] : nodes) result.push_back(std::move(each));
  for (Node& each : result)
    // train refuses nodes with different instruction sets, because results would differ by rounding.
    if (each.machine.at("instruction_set") != result.front().machine.at("instruction_set"))
      each.problems.push_back("another instruction set than the first node's: these cannot train together");
  return result;
}

std::string content_text(const std::filesystem::path& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  try {
    const std::string bytes = read_plain_file(path, kMostBytes, ExitCode::kUsage);
    return fmt::format("{:016x}", hash64(bytes.data(), std::ssize(bytes)));
  } catch (const Error& error) {
    return error.what();
  }
}

std::string rate_text(double value, const char* unit) {
  return value > 0 ? fmt::format("{:.1f} {}", 1e-9 * value, unit) : std::string("-");
}

std::string row(const std::string& rank, const std::string& host, const std::string& products,
                const std::string& memory, const std::string& inside, const std::string& between) {
  return fmt::format("{:>6}  {:<20}{:>16}{:>14}{:>14}{:>14}\n", rank, host, products, memory, inside,
                     between);
}

// Measures the speed of each rank on its `device`. Compares the programs and MPI libraries of the ranks and,
// unless `config_file` is "", the bytes of their configs. Returns the same report on all ranks. Collective.
RankReport report_ranks(MpiWorld& world, const Device& device, const std::string& config_file) {
  Communicator& all = world.communicator();
  RankReport report;
  for (const RankHost& place : world.places()) report.hosts.push_back(place.host);
  // Builds of one commit with different options differ only in the content of the program's file.
  const std::string program =
      fmt::format("{} {}, content {}", version(), git_commit(), content_text("/proc/self/exe"));
  const auto compare = [&](const std::string& what, const std::string& text) {
    if (const std::string groups = rank_groups_text(all.all_gather_text(text), report.hosts); !groups.empty())
      report.differences.push_back(fmt::format("{} differs between ranks: {}", what, groups));
  };
  compare("program", program);
  compare("MPI", world.library());
  // All ranks compare, even without a config, because launchers may give ranks different command lines.
  compare("config", config_file.empty() ? "" : content_text(config_file));
  report.speeds = measure_ranks(world, device);
  report.slow = slow_ranks_of(report.speeds);
  std::vector<std::string> slow_hosts;
  for (const SlowRankFound& each : report.slow)
    slow_hosts.push_back(report.hosts[static_cast<size_t>(each.rank)]);
  report.exclude = exclude_option(slow_hosts);
  return report;
}

Json rank_report_json(const RankReport& report) {
  Json document;
  document["rank_speeds"] = Json::array();
  const auto rate = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  for (size_t r = 0; r < report.speeds.size(); ++r) {
    const RankSpeed& speed = report.speeds[r];
    document["rank_speeds"].push_back(
        {{"rank", r},
         {"host", report.hosts[r]},
         {"products_flops_per_second", rate(speed.flops_per_second)},
         {"memory_bytes_per_second", rate(speed.memory_bytes_per_second)},
         {"inside_node_bytes_per_second", rate(speed.inside_bytes_per_second)},
         {"between_nodes_bytes_per_second", rate(speed.between_bytes_per_second)}});
  }
  document["slow_ranks"] = Json::array();
  for (const SlowRankFound& each : report.slow)
    document["slow_ranks"].push_back({{"rank", each.rank},
                                      {"host", report.hosts[static_cast<size_t>(each.rank)]},
                                      {"what", each.what},
                                      {"share_of_median", each.share}});
  document["exclude"] = report.exclude;
  document["differences"] = report.differences;
  return document;
}

// For people: at most 16 ranks, at most 16 slow ones, `exclude`, differences. Ends with a line end.
std::string rank_report_text(const RankReport& report) {
  constexpr size_t kShown = 16;
  std::string text = row("rank", "host", "products", "memory", "in the node", "between");
  for (size_t r = 0; r < report.speeds.size() && r < kShown; ++r) {
    const RankSpeed& speed = report.speeds[r];
    text += row(std::to_string(r), report.hosts[r], rate_text(speed.flops_per_second, "GFLOP/s"),
                rate_text(speed.memory_bytes_per_second, "GB/s"),
                rate_text(speed.inside_bytes_per_second, "GB/s"),
                rate_text(speed.between_bytes_per_second, "GB/s"));
  }
  if (report.speeds.size() > kShown)
    text += fmt::format("  and {} more ranks (--json shows all)\n", report.speeds.size() - kShown);
  for (size_t i = 0; i < report.slow.size() && i < kShown; ++i) {
    const SlowRankFound& each = report.slow[i];
    text += fmt::format("! rank {} ({}): {} at {:.2f} of the median\n", each.rank,
                        report.hosts[static_cast<size_t>(each.rank)], each.what, each.share);
  }
  if (report.slow.size() > kShown)
    text += fmt::format("! and {} more that are slow (--json shows all)\n", report.slow.size() - kShown);
  if (!report.exclude.empty())
    text += fmt::format("  to leave these nodes out of a job: {}\n", report.exclude);
  for (const std::string& each : report.differences) text += fmt::format("! {}\n", each);
  return text;
}

Report examine(MpiWorld& world, const std::string& config_file) {
  Report report;
  report.ranks = world.communicator().size();
  report.mpi = world.library();
  report.nodes = describe_nodes(world);
  std::vector<std::string> gpus;
  for (const CudaGpu& gpu : look_at_cuda().gpus) gpus.push_back(gpu.bus);
  EnergyMeter meter(posix_io(), EnergyMeter::kPowercap, energy_share(world, gpus));
  if (report.ranks > 1) {
    report.links = measure_links(world, world.communicator(), Device::cpu());
    report.rank_report = report_ranks(world, choose_device(DeviceChoice::kAuto, world), config_file);
  }
  std::vector<NodePower> powers = power_of_nodes(world, meter, !gpus.empty());
  for (size_t i = 0; i < powers.size(); ++i) report.nodes[i].power = std::move(powers[i]);
  return report;
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
    json["power"] = FieldWriter::to_json(node.power);
    document["nodes"].push_back(json);
  }
  document["inside_node"] = FieldWriter::to_json(report.links.inside_node);
  document["between_nodes"] = FieldWriter::to_json(report.links.between_nodes);
  if (report.rank_report) document.update(rank_report_json(*report.rank_report));
  print_out("{}\n", text_of_json(document, 2));
}

// `cuda`: as_json(CudaMachine), perhaps of another rank.
void print_cuda(const Json& cuda) {
  print_out("  cuda        kernels for sm_ {}\n", cuda.at("architectures").get<std::string>());
  for (const Json& each : cuda.at("libraries")) {
    const auto found = each.at("found").get<std::string>();
    print_out("    {:<18}{}  (built with {}, works from {})\n", each.at("name").get<std::string>(),
              found.empty() ? "not found" : found, each.at("built").get<std::string>(),
              each.at("oldest").get<std::string>());
  }
  for (const Json& gpu : cuda.at("gpus"))
    print_out("  gpu         {}, {}, compute capability {}, {} multiprocessors\n",
              gpu.at("name").get<std::string>(), bytes_text(gpu.at("memory_bytes").get<int64_t>()),
              gpu.at("compute_capability").get<std::string>(), gpu.at("multiprocessors").get<int>());
  if (cuda.at("gpus").empty()) print_out("  gpu         none: {}\n", cuda.at("problem").get<std::string>());
}

std::string free_text(const Json& bytes) {
  return bytes.is_null() ? "unknown" : bytes_text(bytes.get<int64_t>()) + " free";
}

void print_node(const Node& node) {
  const Json& machine = node.machine;
  print_out("\n{}  {}\n", machine.at("host").get<std::string>(), counted(node.ranks, "rank"));
  print_out("  system      {}\n", machine.at("system").get<std::string>());
  print_out("  processor   {}\n", machine.at("processor").get<std::string>());
  print_out("  kernels     {}, bfloat16 {}\n", machine.at("instruction_set").get<std::string>(),
            machine.at("fast_bfloat16").get<bool>() ? "in hardware" : "not in hardware");
  print_out("  cores       {}, {} allowed for a rank", machine.at("cores").get<int64_t>(),
            machine.at("cores_allowed").get<int64_t>());
  if (!machine.at("cores_quota").is_null())
    print_out(", control group grants {:.1f}", machine.at("cores_quota").get<double>());
  print_out("\n  memory      {}, {} available", bytes_text(machine.at("memory_bytes").get<int64_t>()),
            bytes_text(machine.at("memory_available_bytes").get<int64_t>()));
  if (!machine.at("memory_limit_bytes").is_null())
    print_out(", control group limits to {}", bytes_text(machine.at("memory_limit_bytes").get<int64_t>()));
  print_out("\n");
  if (machine.contains("cuda")) print_cuda(machine.at("cuda"));
  print_out("  power       {}\n", power_text(node.power));
  print_out("  /dev/shm    {}\n", free_text(machine.at("shared_memory_free_bytes")));
  print_out("  disk here   {}\n", free_text(machine.at("disk_free_bytes")));
  for (const auto& [name, value] : machine.at("environment").items())
    print_out("  {}={}\n", name, value.get<std::string>());
  for (const std::string& problem : node.problems) print_out("  ! {}\n", problem);
}

void print_speed(const char* where, const std::optional<LinkRate>& speed) {
  if (speed)
    print_out("{:<18}{:.1f} us latency, {:.2f} GB/s a rank, slowest ring\n", where,
              1e6 * speed->latency_seconds, 1e-9 * speed->bytes_per_second);
}

void print_for_people(const Report& report) {
  print_out("ripstop {} ({}), {}\n", version(), git_commit(), compiler());
  print_out("back ends: {}\n", back_ends().size() > 1 ? "cpu, cuda" : "cpu (no cuda in this build)");
  for (const Library& library : libraries()) print_out("  {:<16}{}\n", library.name, library.version);
  print_out("\n{} on {}, MPI at run time: {}\n", counted(report.ranks, "rank"),
            counted(std::ssize(report.nodes), "node"), report.mpi);
  for (const Node& node : report.nodes) print_node(node);
  if (report.links.inside_node || report.links.between_nodes) print_out("\n");
  print_speed("inside a node", report.links.inside_node);
  print_speed("between nodes", report.links.between_nodes);
  if (report.rank_report) print_out("\n{}", rank_report_text(*report.rank_report));
}

// Measures rates for `plan --rates`, and writes them to the file `output`. Collective.
void write_rates(MpiWorld& world, const std::filesystem::path& output, bool json) {
  Communicator& all = world.communicator();
  const bool leads = all.rank() == 0;
  do_on_rank_0(all, [&] {
    if (output.has_parent_path() && !std::filesystem::is_directory(output.parent_path()))
      fail(ExitCode::kUsage, "--output {}: there is no folder {}", output.string(),
           output.parent_path().string());
  });
  LiveLine line(stderr);
  if (leads) line.show("measuring rates for half a minute ...");
  const Rates rates = measure_rates(world, choose_device(DeviceChoice::kAuto, world));
  line.clear();
  do_on_rank_0(all, [&] { write_whole_file(output, rates_document(rates)); });
  if (leads && !json)
    print_out("\n{}: the rates of {} a node, {} each; ripstop plan CONFIG --rates {} tells time from them\n",
              output.string(), counted(rates.ranks_per_node, "rank"), counted(rates.threads, "thread"),
              shell_word(output.string()));
}

struct DoctorArguments {
  bool json = false;
  std::string config_file, output;
};

ExitCode doctor(const DoctorArguments& given) {
  MpiWorld world(world_options("doctor"));
  return world.run([&] {
    const Report report = examine(world, given.config_file);
    if (world.communicator().rank() == 0) given.json ? print_json(report) : print_for_people(report);
    if (!given.output.empty()) write_rates(world, given.output, given.json);
    return ExitCode::kOk;
  });
}

}  // namespace

void add_doctor(CommandLine& line) {
  Verb verb = line.verb("doctor", "what was built, what this machine has");
  const auto given = std::make_shared<DoctorArguments>();
  verb.path("--config", given->config_file,
            "with several ranks: a file that must be the same for all of them");
  verb.path(
      "--output", given->output,
      "measure rates for half a minute and write them to this file, for plan --rates; start it with the "
      "job's ranks on each node");
  verb.flag("--json", given->json, "one JSON document");
  verb.add_details(
      "With several ranks it measures products, memory and links of each, names those that are slower than "
      "0.8 of the\nmedian with the option that leaves their nodes out of a job, and ranks whose program or "
      "config differs.");
  verb.set_example(
      "ripstop doctor\n  mpirun -n 4 ripstop doctor     measures between the ranks as well\n"
      "  srun ripstop doctor --output rates.json     how fast they compute and send, for plan --rates\n"
      "  srun ripstop doctor --config mine.toml     before a long run: slow nodes, other binaries, other "
      "configs");
  verb.set_action([given] { return doctor(*given); });
}

}  // namespace ripstop
