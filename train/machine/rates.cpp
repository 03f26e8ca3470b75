#include "train/machine/rates.h"

#include <fmt/ranges.h>

#include <cmath>

#include "data/files/whole_file.h"
#include "data/text/json_reader.h"
#include "data/text/json_struct.h"
#include "train/machine/peak_flops.h"

namespace ripstop {
namespace {

constexpr const char* kMeasure = "measure again: mpirun -n RANKS_OF_A_NODE ripstop doctor --output FILE";

void require_rate(const JsonReader& reader, const char* what, double value) {
  if (!(value > 0 && std::isfinite(value))) reader.refuse_with(kMeasure, "{} is {}, no rate", what, value);
}

void check_link(const JsonReader& reader, const std::string& name, const std::optional<LinkRate>& link) {
  if (!link) return;
  require_rate(reader, (name + ".bytes_per_second").c_str(), link->bytes_per_second);
  if (!(link->latency_seconds >= 0 && link->latency_seconds < 60 && link->compute_share >= 0 &&
        link->compute_share <= 1))
    reader.refuse_with(kMeasure, "{} has a latency of {} s and a compute_share of {}", name,
                       link->latency_seconds, link->compute_share);
}

Rates rates_in(const std::filesystem::path& path) {
  constexpr int64_t kMostBytes = int64_t{4} << 20;
  const JsonReader reader(path.string(), ExitCode::kInputData);
  const std::string text = read_plain_file(path, kMostBytes, ExitCode::kInputData);
  const JsonReader::Json json = reader.parse(text);
  if (const int64_t version = reader.integer(json, "version", 0, FieldReader::kMost);
      version != Rates::kVersion)
    reader.refuse_with(kMeasure, "rates of version {}, this ripstop reads version {}", version,
                       Rates::kVersion);
  FieldReader fields(reader, json, FieldReader::Mode::kSkipsUnknown);
  Rates rates;
  Rates::fields(rates, fields);
  if (rates.device != "cpu" && rates.device != "cuda")
    reader.refuse_with(kMeasure, "rates of a device '{}'", rates.device);
  require_rate(reader, "memory_bytes_per_second", rates.memory_bytes_per_second);
  for (const KernelRate& each : rates.kernels) require_rate(reader, each.kernel.c_str(), each.per_second);
  if (rates.kernels.empty()) reader.refuse_with(kMeasure, "no kernel has a rate");
  check_link(reader, "inside_node", rates.inside_node);
  check_link(reader, "between_nodes", rates.between_nodes);
  if (rates.watts_per_rank) require_rate(reader, "power_watts", *rates.watts_per_rank);
  rates.source = fmt::format("{} ({})", path.filename().string(), fmt::join(rates.hosts, ", "));
  return rates;
}

}  // namespace

std::string rates_document(const Rates& rates) {
  FieldWriter writer;
  writer("version", Rates::kVersion);
  Rates::fields(rates, writer);
  return text_of_json(writer.json, 1) + "\n";
}

Rates read_rates(const std::filesystem::path& path) {
  try {
    return rates_in(path);
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), error.hint().empty() ? kMeasure : error.hint());
  }
}

std::optional<Rates> data_sheet_rates(const std::string& gpu_name, DType compute) {
  // Shares of the peaks that large products, streaming kernels and links reach.
  constexpr double kOfPeak = 0.6, kOfMemory = 0.8, kOfLink = 0.7, kLatencySeconds = 20e-6;
  const std::optional<double> flops = data_sheet_flops(gpu_name, compute);
  if (!flops) return std::nullopt;
  const DataSheet& sheet = *find_data_sheet(gpu_name);
  Rates rates;
  rates.source = fmt::format(
      "data sheet: {} (products at {:.0f}% of its peak, memory at {:.0f}%, links at "
      "{:.0f}%)",
      gpu_name, 100 * kOfPeak, 100 * kOfMemory, 100 * kOfLink);
  rates.device = "cuda";
  rates.model = gpu_name;
  rates.ranks_per_node = 0;
  rates.threads = 0;
  rates.flops_per_second = kOfPeak * *flops;
  rates.memory_bytes_per_second = kOfMemory * (1e9 * sheet.memory);
  rates.inside_node = LinkRate{kLatencySeconds, kOfLink * (1e9 * sheet.link), 1};
  return rates;
}

}  // namespace ripstop
