// Events as lines of JSON, and back.
#include "train/report/metrics_lines.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/core/error.h"

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

// Wall-clock time, so that events of several runs and of other programs can be compared.
double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// JSON has no NaN and no infinity.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
Json number(std::optional<double> value) {
  return value ? number(*value) : Json(nullptr);
}

// The keys below are a contract with people's scripts: docs/formats.md lists them. ordered_json keeps their
// order.

Json to_json(const StepCost& cost) {
  Json memory;
  for (const MemoryCategory category : kMemoryCategories) memory[to_string(category)] = cost.memory[category];
  memory["total"] = cost.memory.total();
  return {{"memory", memory}, {"traffic_per_step", cost.traffic_per_step}};
}

Json to_json(const StartupSeconds& startup) {
  Json json{{"program", number(startup.program)}, {"mpi", number(startup.mpi)},
            {"data", number(startup.data)},       {"memory", number(startup.memory)},
            {"weights", number(startup.weights)}, {"resume", number(startup.resume)},
            {"other", number(startup.other)}};
  if (startup.first_step) json["first_step"] = number(startup.first_step);
  json["total"] = number(startup.total);
  return json;
}

Json to_json(const StartEvent& event) {
  Json json{{"event", "start"},
            {"step", event.step},
            {"steps", event.steps},
            {"argv", event.argv},
            {"version", event.version},
            {"git_commit", event.git_commit},
            {"mesh", event.mesh},
            {"recompute", event.recompute},
            {"micro_batch_sequences", event.micro_batch_sequences},
            {"micro_batches", event.micro_batches},
            {"data",
             {{"kind", event.data.kind},
              {"examples", event.data.examples},
              {"cut_documents", event.data.cut_documents},
              {"cut_summaries", event.data.cut_summaries},
              {"cut_tokens", event.data.cut_tokens},
              {"sequences_per_epoch", event.data.sequences_per_epoch},
              {"tokens_per_epoch", event.data.tokens_per_epoch}}},
            {"checkpoint_bytes", event.checkpoint_bytes},
            {"takeover", event.takeover},
            {"deadline", number(event.deadline)},
            {"deadline_source", event.deadline_source},
            {"parameters", event.parameters},
            {"trained_parameters", event.trained_parameters},
            {"flops_per_token", number(event.flops_per_token)},
            {"flops_per_token_full_attention", number(event.flops_per_token_full_attention)},
            {"flops_formula", event.flops_formula},
            {"peak_flops_per_second", number(event.peak_flops_per_second)},
            {"peak_flops_source", event.peak_flops_source},
            {"plan", to_json(event.plan)},
            {"kernel_plans", event.kernel_plans},
            {"kernel_plans_seconds", number(event.kernel_plans_seconds)}};
  json["mesh"]["hosts"] = event.hosts;
  if (event.startup) json["startup_seconds"] = to_json(*event.startup);
  return json;
}

Json to_json(const StepMetrics& event) {
  Json json{{"event", "step"},
            {"step", event.step},
            {"tokens", event.tokens},
            {"tokens_seen", event.tokens_seen},
            {"loss", number(event.loss)},
            {"grad_norm", number(event.grad_norm)},
            {"learning_rate", number(event.learning_rate)},
            {"step_seconds", number(event.step_seconds)},
            {"tokens_per_second", number(event.tokens_per_second)},
            {"model_flops_utilization", number(event.model_flops_utilization)},
            {"model_flops_utilization_full_attention", number(event.model_flops_utilization_full_attention)},
            {"peak_memory_bytes", event.peak_memory_bytes},
            {"communication_exposed_seconds", event.communication_exposed_seconds},
            {"data_wait_seconds", number(event.data_wait_seconds)},
            {"save_wait_seconds", number(event.save_wait_seconds)}};
  if (event.startup) json["startup_seconds"] = to_json(*event.startup);
  return json;
}

// To four digits: a thousand nodes make a long line.
Json rounded(std::vector<double> values) {
  Json list = Json::array();
  for (const double value : values) {
    const double unit = value > 0 ? std::pow(10.0, std::floor(std::log10(value)) - 3) : 1;
    // Divided by a whole number, as 0.1 times a whole number has digits that nobody wrote.
    list.push_back(number(unit < 1 ? std::round(value / unit) / std::round(1 / unit) : std::round(value)));
  }
  return list;
}

Json to_json(const HostsEvent& event) {
  Json slow = Json::array();
  for (const HostsEvent::SlowRank& rank : event.slow)
    slow.push_back({{"rank", rank.rank}, {"host", rank.host}, {"speed", number(rank.speed)}});
  return {{"event", "hosts"},
          {"step", event.step},
          {"steps", event.steps},
          {"hosts", event.hosts},
          {"compute_seconds", rounded(event.compute_seconds)},
          {"wait_seconds", rounded(event.wait_seconds)},
          {"slow", slow},
          {"exclude", event.exclude}};
}

Json to_json(const ValidationEvent& event) {
  Json json{{"event", "validation"},
            {"step", event.step},
            {"loss", number(event.loss)},
            {"perplexity", number(std::exp(event.loss))},
            {"targets", event.target_count},
            {"seconds", number(event.seconds)},
            {"best", event.best}};
  // Only if summaries were written: null would read as a score that is not finite.
  if (event.rouge1) json["rouge1"] = number(event.rouge1);
  if (event.rouge2) json["rouge2"] = number(event.rouge2);
  if (event.rougeL) json["rougeL"] = number(event.rougeL);
  return json;
}

Json to_json(const SaveEvent& event) {
  return {{"event", "save"},
          {"step", event.step},
          {"state", event.state},
          {"waited_seconds", number(event.waited_seconds)}};
}

Json to_json(const CheckpointEvent& event) {
  return {{"event", "checkpoint"},
          {"step", event.step},
          {"path", event.path},
          {"bytes", event.bytes},
          {"seconds", number(event.seconds)},
          {"waited_seconds", number(event.waited_seconds)}};
}

Json to_json(const WarningEvent& event) {
  return {{"event", "warning"}, {"step", event.step}, {"text", event.text}};
}

Json to_json(const EndEvent& event) {
  return {{"event", "end"},
          {"step", event.step},
          {"exit_code", event.exit_code},
          {"reason", event.reason},
          {"planned", to_json(event.planned)},
          {"measured", to_json(event.measured)},
          {"resident", {{"before", event.resident_before_bytes}, {"peak", event.resident_peak_bytes}}},
          {"seconds", number(event.seconds)}};
}

// nlohmann would also take a fraction, or a number that int64_t cannot hold, and return another number.
int64_t integer(const Json& json) {
  const bool fits = json.is_number_integer() &&
                    (!json.is_number_unsigned() ||
                     json.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits) fail(ExitCode::kStorage, "a number that is no integer");
  return json.get<int64_t>();
}

// Reads a key's value. Keeps the member's default if the key is absent, because other versions have other
// keys.
template <class T>
void take(const Json& json, const char* key, T& value) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if constexpr (std::is_same_v<T, double>)
    // null stands for a number that is not finite, as written above.
    value = found->is_null() ? std::numeric_limits<double>::quiet_NaN() : found->get<double>();
  else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    value = static_cast<T>(integer(*found));
  else
    value = found->get<T>();
}

void take(const Json& json, const char* key, std::optional<double>& value) {
  const auto found = json.find(key);
  if (found != json.end() && !found->is_null()) value = found->get<double>();
}

// The object at `key`; an empty one if it is absent, so that its members keep their defaults.
const Json& child(const Json& json, const char* key) {
  static const Json kNothing = Json::object();
  const auto found = json.find(key);
  return found != json.end() && found->is_object() ? *found : kNothing;
}

template <class T, bool kSizes>
void take(const Json& json, const char* key, PerAxis<T, kSizes>& values) {
  for (const MeshAxis axis : kMeshAxes) take(child(json, key), to_string(axis), values[axis]);
}

void read(const Json& json, StepCost& cost) {
  const Json& memory = child(json, "memory");
  for (const MemoryCategory category : kMemoryCategories)
    take(memory, to_string(category), cost.memory[category]);
  take(json, "traffic_per_step", cost.traffic_per_step);
}

void read_startup(const Json& json, std::optional<StartupSeconds>& startup) {
  const auto found = json.find("startup_seconds");
  if (found == json.end() || !found->is_object()) return;
  StartupSeconds& s = startup.emplace();
  for (const auto& [key, part] :
       {std::pair{"program", &s.program}, std::pair{"mpi", &s.mpi}, std::pair{"data", &s.data},
        std::pair{"memory", &s.memory}, std::pair{"weights", &s.weights}, std::pair{"resume", &s.resume},
        std::pair{"other", &s.other}, std::pair{"total", &s.total}})
    take(*found, key, *part);
  take(*found, "first_step", s.first_step);
}

void read(const Json& json, StartEvent& event) {
  take(json, "steps", event.steps);
  take(json, "argv", event.argv);
  take(json, "version", event.version);
  take(json, "git_commit", event.git_commit);
  take(json, "mesh", event.mesh);
  take(child(json, "mesh"), "hosts", event.hosts);
  take(json, "recompute", event.recompute);
  take(json, "micro_batch_sequences", event.micro_batch_sequences);
  take(json, "micro_batches", event.micro_batches);
  const Json& data = child(json, "data");
  take(data, "kind", event.data.kind);
  take(data, "examples", event.data.examples);
  take(data, "cut_documents", event.data.cut_documents);
  take(data, "cut_summaries", event.data.cut_summaries);
  take(data, "cut_tokens", event.data.cut_tokens);
  take(data, "sequences_per_epoch", event.data.sequences_per_epoch);
  take(data, "tokens_per_epoch", event.data.tokens_per_epoch);
  take(json, "checkpoint_bytes", event.checkpoint_bytes);
  take(json, "takeover", event.takeover);
  take(json, "deadline", event.deadline);
  take(json, "deadline_source", event.deadline_source);
  take(json, "parameters", event.parameters);
  take(json, "trained_parameters", event.trained_parameters);
  take(json, "flops_per_token", event.flops_per_token);
  take(json, "flops_per_token_full_attention", event.flops_per_token_full_attention);
  take(json, "flops_formula", event.flops_formula);
  take(json, "peak_flops_per_second", event.peak_flops_per_second);
  take(json, "peak_flops_source", event.peak_flops_source);
  read(child(json, "plan"), event.plan);
  take(json, "kernel_plans", event.kernel_plans);
  take(json, "kernel_plans_seconds", event.kernel_plans_seconds);
  read_startup(json, event.startup);
}

void read(const Json& json, StepMetrics& event) {
  take(json, "tokens", event.tokens);
  take(json, "tokens_seen", event.tokens_seen);
  take(json, "loss", event.loss);
  take(json, "grad_norm", event.grad_norm);
  take(json, "learning_rate", event.learning_rate);
  take(json, "step_seconds", event.step_seconds);
  take(json, "tokens_per_second", event.tokens_per_second);
  take(json, "model_flops_utilization", event.model_flops_utilization);
  take(json, "model_flops_utilization_full_attention", event.model_flops_utilization_full_attention);
  take(json, "peak_memory_bytes", event.peak_memory_bytes);
  take(json, "communication_exposed_seconds", event.communication_exposed_seconds);
  take(json, "data_wait_seconds", event.data_wait_seconds);
  take(json, "save_wait_seconds", event.save_wait_seconds);
  read_startup(json, event.startup);
}

void read(const Json& json, HostsEvent& event) {
  take(json, "steps", event.steps);
  take(json, "hosts", event.hosts);
  take(json, "compute_seconds", event.compute_seconds);
  take(json, "wait_seconds", event.wait_seconds);
  take(json, "exclude", event.exclude);
  const auto slow = json.find("slow");
  if (slow == json.end()) return;
  for (const Json& each : *slow) {
    HostsEvent::SlowRank& rank = event.slow.emplace_back();
    take(each, "rank", rank.rank);
    take(each, "host", rank.host);
    take(each, "speed", rank.speed);
  }
}

void read(const Json& json, ValidationEvent& event) {
  take(json, "loss", event.loss);
  take(json, "targets", event.target_count);
  take(json, "seconds", event.seconds);
  take(json, "best", event.best);
  take(json, "rouge1", event.rouge1);
  take(json, "rouge2", event.rouge2);
  take(json, "rougeL", event.rougeL);
}

void read(const Json& json, SaveEvent& event) {
  take(json, "state", event.state);
  take(json, "waited_seconds", event.waited_seconds);
}

void read(const Json& json, CheckpointEvent& event) {
  take(json, "path", event.path);
  take(json, "bytes", event.bytes);
  take(json, "seconds", event.seconds);
  take(json, "waited_seconds", event.waited_seconds);
}

void read(const Json& json, WarningEvent& event) {
  take(json, "text", event.text);
}

void read(const Json& json, EndEvent& event) {
  take(json, "exit_code", event.exit_code);
  take(json, "reason", event.reason);
  read(child(json, "planned"), event.planned);
  read(child(json, "measured"), event.measured);
  take(child(json, "resident"), "before", event.resident_before_bytes);
  take(child(json, "resident"), "peak", event.resident_peak_bytes);
  take(json, "seconds", event.seconds);
}

// Reads the members that all events have, then those of this one.
template <class Event>
void add(const Json& json, std::vector<Event>& events) {
  Event event;
  take(json, "step", event.step);
  take(json, "time", event.time);
  read(json, event);
  events.push_back(std::move(event));
}

}  // namespace

template <class Event>
std::string line_of(const Event& event) {
  Json json = to_json(event);
  json["time"] = event.time != 0 ? event.time : now_seconds();
  // `replace`: arguments and paths may hold bytes that are not UTF-8, and logging must not end a run.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

template std::string line_of(const StartEvent&);
template std::string line_of(const StepMetrics&);
template std::string line_of(const HostsEvent&);
template std::string line_of(const ValidationEvent&);
template std::string line_of(const SaveEvent&);
template std::string line_of(const CheckpointEvent&);
template std::string line_of(const WarningEvent&);
template std::string line_of(const EndEvent&);

EventHead add_line(std::string_view line, MetricsLog& log) {
  try {
    const Json json = Json::parse(line);
    const EventHead head{json.at("event").get<std::string>(), integer(json.at("step"))};
    const std::string& event = head.event;
    if (event == "start") add(json, log.starts);
    if (event == "step") add(json, log.steps);
    if (event == "hosts") add(json, log.hosts);
    if (event == "validation") add(json, log.validations);
    if (event == "save") add(json, log.saves);
    if (event == "checkpoint") add(json, log.checkpoints);
    if (event == "warning") add(json, log.warnings);
    if (event == "end") add(json, log.ends);
    // Only the last event tells, because a resumed run writes more lines after an "end".
    log.ended = event == "end";
    return head;
  } catch (const Json::parse_error&) {
    // The library's own text is long, and quotes bytes that may be anything.
    fail(ExitCode::kStorage, "no JSON");
  } catch (const Json::exception&) {
    fail(ExitCode::kStorage, "no event, or a field has another type");
  }
}

}  // namespace ripstop
