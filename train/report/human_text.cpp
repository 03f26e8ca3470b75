#include "train/report/human_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string_view>

#include "data/files/directory.h"
#include "data/text/json_struct.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

// "61.3/64.0 GiB"; "2.6 MiB/64.0 GiB" if the units differ.
std::string memory_text(int64_t peak, std::optional<int64_t> limit) {
  const std::string used = bytes_text(peak);
  if (!limit) return used;
  const std::string all = bytes_text(*limit);
  const size_t unit = used.find(' ');
  return (all.substr(all.find(' ')) == used.substr(unit) ? used.substr(0, unit) : used) + "/" + all;
}

}  // namespace

std::string duration_text(double seconds) {
  // The time left is infinite if a run makes no progress. 1e10 seconds are 300 years.
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e10) return "?";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole % 86400 / 3600);
}

std::string clock_text(double time, const char* format, bool utc) {
  constexpr double kManySeconds = 1e11;  // a time in a file may be any number; these are 3,000 years
  if (!(std::abs(time) < kManySeconds)) return "?";
  const auto seconds = static_cast<std::time_t>(time);
  std::tm parts{};
  utc ? ::gmtime_r(&seconds, &parts) : ::localtime_r(&seconds, &parts);
  char text[64] = {};
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

double without_nan_sign(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

std::string perplexity_text(double loss) {
  const double perplexity = without_nan_sign(std::exp(loss));
  return perplexity < 1e6 ? fmt::format("{:.3f}", perplexity) : fmt::format("{:.1e}", perplexity);
}

std::string counted(int64_t number, const std::string& noun) {
  if (number == 1) return "1 " + noun;
  const bool hisses = noun.ends_with("ch") || noun.ends_with("sh") || noun.ends_with("s");
  const bool ends_in_y = noun.size() > 1 && noun.ends_with("y") &&
                         std::string_view("aeiou").find(noun[noun.size() - 2]) == std::string_view::npos;
  if (ends_in_y) return fmt::format("{} {}ies", number, noun.substr(0, noun.size() - 1));
  return fmt::format("{} {}{}", number, noun, hisses ? "es" : "s");
}

std::string number_text(double value, int digits) {
  constexpr std::pair<double, const char*> kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
  for (const auto& [least, unit] : kUnits)
    if (std::abs(value) >= least && std::abs(value) < 1e15)
      return fmt::format("{:.{}g}{}", value / (least == 1e4 ? 1e3 : least), digits, unit);
  return fmt::format("{:.{}g}", without_nan_sign(value), digits);
}

std::string amount_text(double value) {
  return value > 0 && value < 0.001 ? "<0.001" : number_text(value);
}

std::string seconds_text(double seconds) {
  return seconds < 0.001 ? number_text(1e6 * seconds, 3) + " us" : number_text(seconds, 3) + " s";
}

std::string account_text(const std::optional<RunAccount>& account) {
  if (!account) return "";
  std::string text = amount_text(account->node_hours) + " node-hours";
  if (!account->kwh)
    return text + (account->gpu_kwh ? ", " + amount_text(*account->gpu_kwh) + " kWh of GPUs"
                                    : ", energy not readable");
  text += ", " + amount_text(*account->kwh) + " kWh";
  if (account->watts() && account->tokens_per_kwh())
    text += fmt::format(" ({} W a node, {} tokens a kWh)", number_text(*account->watts()),
                        number_text(*account->tokens_per_kwh()));
  return text;
}

std::string model_text(const ModelConfig& model) {
  std::string text = fmt::format(
      "{} layers, hidden {}, feed-forward {}, {} heads ({} key-value), {} pieces{}", model.num_hidden_layers,
      model.hidden_size, model.intermediate_size, model.num_attention_heads, model.num_key_value_heads,
      model.vocab_size, model.tie_word_embeddings ? ", tied" : "");
  FieldWriter has, plain;
  for_each_field(model, has);
  for_each_field(ModelConfig{}, plain);
  bool is_part = false;
  for (const auto& [name, value] : has.json.items()) {
    is_part |= name == "head_dim";  // the fields before it are sizes and constants that every model has
    const bool differs =
        name == "head_dim" ? model.query_size() != model.hidden_size : value != plain.json[name];
    if (is_part && differs)
      text += fmt::format(", {} {}", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

std::string step_line(const StepMetrics& step, int64_t steps, std::optional<int64_t> memory_limit_bytes,
                      double eta_seconds) {
  // Two digits after the point would show 0.00 for a small norm.
  const double norm = without_nan_sign(step.grad_norm);
  const bool small = norm != 0 && std::abs(norm) < 0.1;
  std::string line = fmt::format("step {}/{}  loss {:.4f}  grad_norm {}  lr {:.2e}  {:.0f} tok/s", step.step,
                                 steps, without_nan_sign(step.loss),
                                 small ? fmt::format("{:.2g}", norm) : fmt::format("{:.2f}", norm),
                                 step.learning_rate, step.tokens_per_second);
  if (step.model_flops_utilization)
    line += fmt::format("  mfu {:.1f}%", 100.0 * *step.model_flops_utilization);
  return line + fmt::format("  {}  eta {}", memory_text(step.peak_memory_bytes, memory_limit_bytes),
                            duration_text(eta_seconds));
}

std::string live_step_line(const StepMetrics& step, int64_t steps, double eta_seconds) {
  return fmt::format("step {}/{}  loss {:.4f}  {:.0f} tok/s  eta {}", step.step, steps,
                     without_nan_sign(step.loss), step.tokens_per_second, duration_text(eta_seconds));
}

std::vector<std::string> short_paths(const std::vector<std::string>& paths, size_t kept) {
  namespace fs = std::filesystem;
  std::vector<std::vector<fs::path>> names;
  size_t fewest = paths.empty() ? 0 : SIZE_MAX;
  for (const std::string& given : paths) {
    const fs::path whole = without_slash(fs::path(given).lexically_normal());
    fewest = std::min(fewest, names.emplace_back(whole.begin(), whole.end()).size());
  }
  size_t shared = 0;
  while (shared + kept < fewest &&
         std::ranges::all_of(names, [&](const auto& each) { return each[shared] == names[0][shared]; }))
    ++shared;
  std::vector<std::string> ends;
  for (const auto& each : names) {
    fs::path end;
    for (size_t n = shared; n < each.size(); ++n) end /= each[n];
    ends.push_back(end.string());
  }
  return ends;
}

}  // namespace ripstop
