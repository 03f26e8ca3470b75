#include "train/commands/plan_rates.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include "train/commands/command_line.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// The rest of a unit after its letter, in capitals, and the factor that the letter K then means.
struct Unit {
  std::string_view rest;
  double kilo;
};
constexpr Unit kMemory[] = {{"", 1024}, {"IB", 1024}, {"B", 1000}};
constexpr Unit kLink[] = {{"BIT", 1000}, {"BIT/S", 1000}, {"BPS", 1000}};
constexpr Unit kFlops[] = {{"", 1000}, {"FLOPS", 1000}, {"FLOP/S", 1000}};

/// Parses a number with a letter of KMGTP and one of `units`. Throws CommandLineError for any other text, and
/// outside 1 to 1e18. For the message, `unit` is the usual unit, `what` a noun such as "amount of memory".
double parse_amount(const std::string& option, const std::string& text, std::span<const Unit> units,
                    const char* unit, const std::string& what) {
  // The letter at index i means `kilo` to the power of i + 1.
  constexpr std::string_view kLetters = "KMGTP";
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (number > 0 && std::isfinite(number) && *end == '\0')
    throw CommandLineError(fmt::format("{} {} has no unit", option, text),
                           number < 1e4 ? fmt::format("did you mean {} {}{}?", option, text, unit)
                                        : fmt::format("as in 80{}", unit));
  std::string word;
  for (; *end != '\0'; ++end)
    if (*end != ' ') word += static_cast<char>(std::toupper(static_cast<unsigned char>(*end)));
  const size_t power = word.empty() ? std::string_view::npos : kLetters.find(word.front());
  const auto found =
      std::ranges::find(units, power == std::string_view::npos ? "?" : word.substr(1), &Unit::rest);
  const double amount = found == units.end() ? 0 : number * std::pow(found->kilo, power + 1);
  if (!(amount >= 1 && amount < 1e18))
    throw CommandLineError(fmt::format("{} {} is no {}", option, text, what),
                           fmt::format("as in 80{}", unit));
  return amount;
}

Rates rates_of_word(const std::string& word, DType compute) {
  std::error_code error;
  if (std::filesystem::exists(word, error)) return read_rates(word);
  if (std::optional<Rates> sheet = data_sheet_rates(word, compute)) return *std::move(sheet);
  throw Error(ExitCode::kInputData,
              fmt::format("--rates {} is neither a file nor a GPU whose data sheet is known", word),
              "give a file of ripstop doctor --output, or a name as H100, A100 or L40S");
}

}  // namespace

std::optional<int64_t> parse_memory(const std::string& option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  return static_cast<int64_t>(parse_amount(option, text, kMemory, "GiB", "amount of memory"));
}

std::optional<Rates> rates_for_plan(const RateArguments& given, const RunTarget& target, DType compute) {
  constexpr double kLatencySeconds = 30e-6;  // between nodes, if only the bandwidth is known
  if (!given.any()) return std::nullopt;
  Rates rates = given.rates.empty() ? Rates{} : rates_of_word(given.rates, compute);
  const std::string device = target.device == DeviceKind::kCuda ? "cuda" : "cpu";
  if (!rates.device.empty() && rates.device != device)
    throw Error(
        ExitCode::kInputData,
        fmt::format("--rates {} has rates of {}, the plan is for {}", given.rates, rates.device, device),
        fmt::format("give --device {}, or rates of such ranks", rates.device));
  const auto replace = [&](const std::string& option, const std::string& text) {
    rates.source += fmt::format("{}{} {}", rates.source.empty() ? "" : ", ", option, text);
  };
  if (!given.rank_flops.empty()) {
    rates.flops_per_second = parse_amount("--rank-flops", given.rank_flops, kFlops, "T", "number of FLOP/s");
    std::erase_if(rates.kernels, [](const KernelRate& each) {
      return each.kernel.starts_with("linear") || each.kernel.starts_with("attention");
    });
    replace("--rank-flops", given.rank_flops);
  }
  if (!given.between_nodes.empty()) {
    const double bits =
        parse_amount("--between-nodes", given.between_nodes, kLink, "Gbit", "bandwidth in bits per second");
    LinkRate& link = rates.between_nodes ? *rates.between_nodes
                                         : rates.between_nodes.emplace(LinkRate{kLatencySeconds, 0, 1});
    // The ranks of a node share its link.
    link.bytes_per_second = bits / 8 / static_cast<double>(target.ranks_per_node);
    replace("--between-nodes", given.between_nodes);
  }
  return rates;
}

std::vector<std::string> rates_notes(const RateArguments& given, const RunTarget& target, int64_t threads) {
  if (!target.rates) return {};
  std::vector<std::string> notes;
  const int64_t ranks = target.ranks_per_node;
  if (!given.between_nodes.empty() && ranks >= target.ranks)
    notes.emplace_back("--between-nodes has no effect: the job has one node; --nodes gives it more");
  const Rates& rates = *target.rates;
  const bool other_threads = rates.device == "cpu" && rates.threads != threads;
  if (!rates.kernels.empty() && (rates.ranks_per_node != ranks || other_threads))
    notes.push_back(
        fmt::format("the rates were measured with {} a node of {} each, this job has {} of {}: measure with "
                    "OMP_NUM_THREADS={} mpirun -n {} ripstop doctor --output FILE",
                    counted(rates.ranks_per_node, "rank"), counted(rates.threads, "thread"), ranks, threads,
                    threads, ranks));
  return notes;
}

}  // namespace ripstop
