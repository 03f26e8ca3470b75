#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/process/shell_word.h"
#include "data/text/utf8.h"
#include "train/page/chart.h"
#include "train/page/html_text.h"
#include "train/page/page_parts.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

using Runs = std::span<const RunRecord>;

std::string steps_text(const RunRecord& run) {
  const int64_t step = run.last_step ? run.last_step->step : run.last_start ? run.last_start->step : 0;
  if (!run.last_start || run.last_start->steps <= 0) return std::to_string(step);
  return fmt::format("{} of {}", step, run.last_start->steps);
}

std::string time_of(const RunRecord& run) {
  return run.seconds.total() > 0 ? duration_text(run.seconds.total()) : "";
}

std::string bad(const std::string& text) {
  return "<span class=\"bad\">" + text + "</span>";
}

std::string state_of(const RunRecord& run) {
  const std::string state = html(run.state);
  const bool is_finite =
      !run.last_step || (std::isfinite(run.last_step->loss) && std::isfinite(run.last_step->grad_norm));
  return !is_finite ? bad(state + ", diverged") : run.state.starts_with("failed") ? bad(state) : state;
}

// Whether the last validation's loss is above the best loss by more than a hundredth.
bool is_worse_now(const RunRecord& run) {
  return run.best_loss && run.last_validation && run.last_validation->step > run.best_loss->step &&
         run.last_validation->loss > 1.01 * run.best_loss->loss;
}

// "What is trained: adapters of 1.2M weights beside the frozen 6.7G of models/llama2, on 204045 documents
// with summaries of data/xsum." Empty without a config or a start that has `parameters`.
std::string trained_text(const RunRecord& run) {
  if (!run.last_start || !run.config || run.last_start->parameters == 0) return "";
  const StartEvent& start = *run.last_start;
  const RunConfig& config = *run.config;
  const std::string all = number_text(static_cast<double>(start.parameters), 3);
  const std::string source = "<bdi>" + html(config.model.pretrained, 120) + "</bdi>";
  std::string text;
  if (config.lora.any())
    text = fmt::format("adapters of {} weights beside the frozen {} of {}",
                       number_text(static_cast<double>(start.trained_parameters), 3), all, source);
  else if (!config.run.continue_from.empty())
    text =
        fmt::format("all {} weights of <bdi>{}</bdi>, continued", all, html(config.run.continue_from, 120));
  else
    text = config.model.pretrained.empty() ? fmt::format("a model of {} weights, from random ones", all)
                                           : fmt::format("all {} weights of {}", all, source);
  const char* const kind = config.data.all().size() > 1                       ? "examples"
                           : start.data.kind == to_string(ExampleKind::kText) ? "texts"
                           : start.data.kind == to_string(ExampleKind::kConversation)
                               ? "conversations"
                               : "documents with summaries";
  const std::string data = start.data.examples > 0 ? fmt::format("{} {} of ", start.data.examples, kind) : "";
  return fmt::format("What is trained: {}, on {}<bdi>{}</bdi>.", text, data,
                     html(fmt::format("{}", fmt::join(config.data.all(), ", ")), 120));
}

std::string sentences(const RunRecord& run) {
  std::string text = state_of(run) + ": ";
  if (run.last_step)
    text += fmt::format("{} steps in {}. ", steps_text(run), duration_text(run.seconds.total()));
  else
    text += run.last_start ? fmt::format("no step of {} was made. ", run.last_start->steps)
                           : "nothing was logged. ";
  if (run.diverged)
    text += bad(fmt::format("The loss or the gradient was not finite in {}, first at step {}.",
                            counted(run.not_finite, "step"), *run.diverged)) +
            " ";
  if (run.state == "interrupted" || run.state.starts_with("failed"))
    text += fmt::format("Cause of the end: {}. ", html(reason_of(run.end)));
  if (run.first_loss && run.last_step && std::isfinite(*run.first_loss) &&
      std::isfinite(run.last_step->loss)) {
    const std::string change =
        fmt::format("The training loss went from {:.4g} to {:.4g}.", *run.first_loss, run.last_step->loss);
    text += (run.last_step->loss > 1.2 * *run.first_loss ? bad(change) : change) + " ";
  }
  if (run.best_loss)
    text += fmt::format("The best validation loss is {:.4f} at step {} (perplexity {}). ",
                        run.best_loss->loss, run.best_loss->step, perplexity_text(run.best_loss->loss));
  if (is_worse_now(run))
    text += fmt::format("Since then it rose to {:.4f} at step {}{}. ", run.last_validation->loss,
                        run.last_validation->step,
                        run.last_step && run.last_step->loss < run.best_loss->loss
                            ? ": the run may learn its training texts by heart"
                            : "");
  if (run.best_rouge)
    text += fmt::format("The best ROUGE-L of its validations, over few documents, is {:.3f} at step {}. ",
                        *run.best_rouge->rougeL, run.best_rouge->step);
  if (run.restart_count > 0) text += fmt::format("It was restarted {}. ", counted(run.restart_count, "time"));
  for (const std::string& note : run.notes) text += "<br><span class=\"note\">" + html(note) + "</span>";
  return text;
}

// A sentence on the runs with the lowest validation loss, or on data that differ; "" unless two have losses.
std::string winner(Runs runs) {
  std::string names, data;
  double best = std::numeric_limits<double>::infinity();
  size_t known = 0, equal = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].best_loss) continue;
    const std::string hash =
        runs[i].state_of_checkpoint ? runs[i].state_of_checkpoint->validation_content_hash : "";
    if (!data.empty() && !hash.empty() && hash != data)
      return "<p>The runs have different validation data: their losses cannot be compared.</p>";
    if (!hash.empty()) data = hash;
    ++known;
    const double loss = runs[i].best_loss->loss;
    equal = loss == best ? equal + 1 : loss < best ? 1 : equal;
    if (loss < best) names.clear();
    if (loss <= best) names += (names.empty() ? "" : ", ") + name_of(runs, i, 80);
    best = std::min(best, loss);
  }
  if (known < 2) return "";
  return fmt::format("<p>Lowest validation loss of these runs: {:.4f}, by {}{}.</p>", best, names,
                     equal > 1 ? ", which are equal" : "");
}

// Seconds as a share of all, "3h12m (81.2%)"; "" unless both are above 0.
std::string share_text(double seconds, double all) {
  if (seconds <= 0 || all <= 0) return "";
  return fmt::format("{} ({:.1f}%)", duration_text(seconds), 100 * seconds / all);
}

struct Purpose {
  std::string name;
  double seconds;
};
std::vector<Purpose> purposes(const TimeUse& time) {
  std::vector<Purpose> all = {{"computing", std::max(time.compute(), 0.0)}};
  for (const MeshAxis axis : kMeshAxes)
    all.push_back({fmt::format("exposed communication, {}", to_string(axis)), time.exposed[axis]});
  all.push_back({"waiting for data", time.data});
  all.push_back({"waiting for saves", time.save + time.saves_between});
  all.push_back({"validation", time.validation});
  all.push_back({"starting", time.startup});
  return all;
}

// The page's color of a purpose.
std::string shade(size_t purpose) {
  return fmt::format("var(--p{})", purpose);
}

std::string bar(const RunRecord& run) {
  std::string out = "<div class=\"bar\">";
  const std::vector<Purpose> all = purposes(run.seconds);
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].seconds > 0)
      out += fmt::format("<span style=\"flex:{:.4f};background:{}\" title=\"{}: {}\"></span>",
                         all[i].seconds / run.seconds.total(), shade(i), all[i].name,
                         share_text(all[i].seconds, run.seconds.total()));
  return out + "</div>";
}

std::string host_table(const RunRecord& run) {
  constexpr size_t kShown = 32;
  std::vector<std::pair<std::string, HostTime>> hosts(run.hosts.begin(), run.hosts.end());
  std::ranges::stable_sort(hosts, std::greater<>(), [](const auto& host) { return host.second.compute; });
  std::string out =
      "<div class=\"scroll\"><table><thead><tr><th>host</th><th>computes, a step</th><th>waits, a "
      "step</th></tr></thead>";
  for (size_t i = 0; i < std::min(hosts.size(), kShown); ++i)
    out += fmt::format("<tr><td><bdi>{}</bdi></td><td>{}</td><td>{}</td></tr>", html(hosts[i].first, 80),
                       seconds_text(hosts[i].second.compute), seconds_text(hosts[i].second.wait));
  if (hosts.size() > kShown) out += fmt::format("<tr><td>{} faster hosts</td></tr>", hosts.size() - kShown);
  return out + "</table></div>";
}

std::string command(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& word : argv) line += (line.empty() ? "" : " ") + shell_word(word);
  return line.empty() ? "" : "<code>" + html(line, 2000) + "</code>";
}

std::string hosts_text(const StartEvent& start) {
  std::vector<std::string> names = start.hosts;
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  for (std::string& name : names) name = html(name, 60);
  return some_of(names, 8);
}

// A cell function for RunTable::row: `text` of the run's last start, "" without a start.
auto of_start(auto&& text) {
  return [text](const RunRecord& run) { return run.last_start ? std::string(text(*run.last_start)) : ""; };
}
auto of_checkpoint(auto&& text) {
  return [text](const RunRecord& run) {
    return run.state_of_checkpoint ? std::string(text(*run.state_of_checkpoint)) : "";
  };
}

// "planned / measured", with "-" for the second if the run has not ended; "" if both are 0.
std::string planned_measured(int64_t planned, std::optional<int64_t> measured) {
  if (planned == 0 && measured.value_or(0) == 0) return "";
  return bytes_text(planned) + " / " + (measured ? bytes_text(*measured) : "-");
}

}  // namespace

std::string colors() {
  std::string rules;
  for (size_t i = 0; i < kColors; ++i)
    rules += fmt::format(
        ".c{0}{{stroke:var(--c{0})}}circle.c{0}{{fill:var(--c{0});stroke:none}}svg .t{0}{{fill:var(--c{0})}}"
        ".r{0}{{--run:var(--c{0})}}\n",
        i);
  return rules;
}

std::string name_of(Runs runs, size_t number, size_t most) {
  const std::string name = "<bdi>" + html(runs[number].name, most) + "</bdi>";
  if (runs.size() == 1) return name;
  return fmt::format("<span class=\"r{}\"><span class=\"swatch\"></span>{}</span>", number % kColors, name);
}

std::string RunTable::html() const {
  std::string out =
      fmt::format("<div class=\"scroll\"><table{}>", runs_.size() == 1 ? " class=\"facts\"" : "");
  if (runs_.size() > 1) {
    out += "<thead><tr><th></th>";
    for (size_t i = 0; i < runs_.size(); ++i) out += "<th>" + name_of(runs_, i, 60) + "</th>";
    out += "</tr></thead>";
  }
  out += "<tbody>";
  for (const Row& row : rows_) {
    out += "<tr><th>" + row.label + "</th>";
    for (const std::string& cell : row.cells) out += "<td>" + (cell.empty() ? "-" : cell) + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string RunTable::tiles() const {
  std::string out = "<dl class=\"tiles\">";
  for (const Row& row : rows_)
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", row.label, row.cells.at(0));
  return out + "</dl>\n";
}

std::string story(Runs runs) {
  std::string out = winner(runs);
  for (size_t i = 0; i < runs.size(); ++i)
    out += fmt::format("<div class=\"story r{}\"><h3>{}</h3><p>{}</p><p>{}</p></div>\n", i % kColors,
                       name_of(runs, i, 200), trained_text(runs[i]), sentences(runs[i]));
  return out;
}

std::string overview(Runs runs) {
  RunTable table(runs);
  table.row("state", state_of);
  table.row("steps", [](const RunRecord& run) { return run.last_step ? steps_text(run) : ""; });
  table.row("training loss", [](const RunRecord& run) {
    if (!run.last_step) return std::string();
    const bool is_finite = std::isfinite(run.last_step->loss);
    return is_finite ? fmt::format("{:.4f}", run.last_step->loss) : bad("not finite");
  });
  table.row("best validation loss", [](const RunRecord& run) {
    return run.best_loss ? fmt::format("{:.4f}, step {}", run.best_loss->loss, run.best_loss->step) : "";
  });
  table.row("best ROUGE-L", [](const RunRecord& run) {
    return run.best_rouge ? fmt::format("{:.4f}, step {}", *run.best_rouge->rougeL, run.best_rouge->step)
                          : "";
  });
  table.row("tokens", [](const RunRecord& run) {
    return run.last_step ? number_text(static_cast<double>(run.last_step->tokens_seen)) : "";
  });
  table.row("time", time_of);
  table.row("tokens a second", [](const RunRecord& run) {
    Extent speed;
    for (const Column& column : run.columns.all()) speed.add(column[Series::kSpeed]);
    return speed.count > 0 ? number_text(speed.mean()) : "";
  });
  table.row("node-hours, energy", [](const RunRecord& run) { return html(account_text(run.account)); });
  table.row("peak memory of a rank", [](const RunRecord& run) {
    return run.last_step ? bytes_text(run.last_step->peak_memory_bytes) : "";
  });
  table.row("parameters", of_start([](const StartEvent& start) {
              if (start.parameters == 0) return std::string();
              const std::string all = number_text(static_cast<double>(start.parameters));
              if (start.trained_parameters == start.parameters || start.trained_parameters == 0) return all;
              return fmt::format("{}, trained {}", all,
                                 number_text(static_cast<double>(start.trained_parameters)));
            }));
  table.row("mesh", of_start([](const StartEvent& start) { return start.mesh.to_text(); }));
  return runs.size() == 1 ? table.tiles() : table.html();
}

std::string time_use(Runs runs) {
  if (std::ranges::none_of(runs, [](const RunRecord& run) { return run.seconds.total() > 0; })) return "";
  std::string out = section_begin("time") + "<p class=\"note\">seconds of rank 0</p>";
  for (size_t i = 0; i < runs.size(); ++i)
    if (runs[i].seconds.total() > 0) out += (runs.size() > 1 ? name_of(runs, i, 80) : "") + bar(runs[i]);
  RunTable table(runs);
  for (size_t i = 0; i < purposes({}).size(); ++i)
    table.row(
        fmt::format("<span class=\"swatch\" style=\"--run:{}\"></span>{}", shade(i), purposes({})[i].name),
        [&](const RunRecord& run) {
          return share_text(purposes(run.seconds)[i].seconds, run.seconds.total());
        });
  table.row("all", time_of);
  table.row("checkpoints", [](const RunRecord& run) {
    if (run.checkpoint_count == 0 && run.failed_saves == 0) return std::string();
    return fmt::format("{} of {}, written beside training in {}{}", run.checkpoint_count,
                       bytes_text(run.checkpoint_bytes), duration_text(run.checkpoint_seconds),
                       run.failed_saves > 0 ? bad(fmt::format(", {} failed", run.failed_saves)) : "");
  });
  out += table.html();
  for (size_t i = 0; i < runs.size(); ++i)
    if (!runs[i].hosts.empty())
      out += fmt::format("<details><summary>by host{}</summary>{}</details>",
                         runs.size() > 1 ? ", " + html(runs[i].name, 60) : "", host_table(runs[i]));
  return out + "</section>\n";
}

std::string memory_use(Runs runs) {
  RunTable table(runs);
  const auto row = [&](const std::string& label, auto&& of_cost) {
    table.row(label, [&](const RunRecord& run) -> std::string {
      if (!run.last_start) return "";
      const StepCost& plan = run.end ? run.end->planned : run.last_start->plan;
      return planned_measured(of_cost(plan),
                              run.end ? std::optional(of_cost(run.end->measured)) : std::nullopt);
    });
  };
  for (const MemoryCategory category : kMemoryCategories)
    row(to_string(category), [&](const StepCost& cost) { return cost.memory[category]; });
  row("all memory", [](const StepCost& cost) { return cost.memory.total(); });
  for (const MeshAxis axis : kMeshAxes)
    row(fmt::format("sent in a step, {}", to_string(axis)),
        [&](const StepCost& cost) { return cost.traffic_per_step[axis]; });
  table.row("process of rank 0, peak",
            [](const RunRecord& run) { return run.end ? bytes_text(run.end->resident_peak_bytes) : ""; });
  if (table.is_empty()) return "";
  return section_begin("memory") + "<p class=\"note\">planned / measured, of a rank</p>" + table.html() +
         "</section>\n";
}

std::string history(Runs runs, const PageOptions& options) {
  std::string out = section_begin("history");
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunRecord& run = runs[i];
    out += "<h3>" + name_of(runs, i, 80) + "</h3>";
    if (run.restart_count == 0) out += "<p class=\"note\">never restarted</p>";
    if (!run.restarts.empty())
      out +=
          "<div class=\"scroll\"><table><thead><tr><th>when</th><th>from "
          "step</th><th>why</th><th>mesh</th></tr></thead>";
    for (const Restart& restart : run.restarts)
      out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td></tr>\n",
                         time_text(restart.time, options.utc), restart.step, html(restart.reason),
                         restart.other_mesh ? "now " : "", restart.mesh);
    if (!run.restarts.empty()) out += "</table></div>";
    if (const int64_t more = run.restart_count - std::ssize(run.restarts); more > 0)
      out += fmt::format("<p class=\"note\">and {} more</p>", more);
    if (run.warnings.empty()) continue;
    out += fmt::format("<details><summary>{}{}</summary><ul>", counted(run.warning_count, "warning"),
                       run.warning_count > std::ssize(run.warnings) ? ", the last ones" : "");
    for (const WarningEvent& warning : run.warnings)
      out += fmt::format("<li>step {}: {}</li>", warning.step, html(warning.text, 600));
    out += "</ul></details>";
  }
  return out + "</section>\n";
}

std::string origin(Runs runs, const PageOptions& options) {
  RunTable table(runs);
  table.row("directory", [](const RunRecord& run) { return html(run.path, 400); });
  table.row("command", of_start([](const StartEvent& start) { return command(start.argv); }));
  table.row("changed on resume", [](const RunRecord& run) {
    std::string text;
    for (const std::string& change : run.changes) text += (text.empty() ? "" : "<br>") + html(change, 400);
    return text;
  });
  table.row("begun", [&](const RunRecord& run) {
    return run.first_start ? time_text(run.first_start->time, options.utc) : "";
  });
  table.row("last event",
            [&](const RunRecord& run) { return run.time == 0 ? "" : time_text(run.time, options.utc); });
  table.row("ripstop", of_start([](const StartEvent& start) {
              return html(start.version, 60) +
                     (start.git_commit.empty() ? "" : " (" + html(start.git_commit, 60) + ")");
            }));
  table.row("hosts", of_start(hosts_text));
  table.row("recompute, micro-batches", of_start([](const StartEvent& start) {
              return fmt::format("{}, {} of {}", html(start.recompute, 40), start.micro_batches,
                                 counted(start.micro_batch_sequences, "sequence"));
            }));
  table.row("examples", of_start([](const StartEvent& start) {
              return start.data.examples == 0
                         ? ""
                         : fmt::format("{} ({})", start.data.examples, html(start.data.kind, 40));
            }));
  table.row("data set (XXH3-128)",
            of_checkpoint([](const CheckpointState& state) { return html(state.data_content_hash); }));
  table.row("validation set (XXH3-128)",
            of_checkpoint([](const CheckpointState& state) { return html(state.validation_content_hash); }));
  table.row("tokenizer (SHA-256)",
            of_checkpoint([](const CheckpointState& state) { return html(state.tokenizer_sha256); }));
  table.row("frozen base of the adapters", of_checkpoint([](const CheckpointState& state) {
              return state.adapted ? html(state.adapted->directory) + " " + html(state.adapted->hash)
                                   : std::string();
            }));
  table.row("pretrained",
            [](const RunRecord& run) { return run.config ? html(run.config->model.pretrained) : ""; });
  table.row("adapters (LoRA)", [](const RunRecord& run) {
    return run.config && run.config->lora.rank > 0 ? fmt::format("rank {}", run.config->lora.rank) : "";
  });
  table.row("FLOPs of a token",
            of_start([](const StartEvent& start) { return number_text(start.flops_per_token); }));
  table.row("peak of the devices", of_start([](const StartEvent& start) {
              const std::string source = html(start.peak_flops_source);
              return start.peak_flops_per_second
                         ? fmt::format("{} FLOP/s, {}", number_text(*start.peak_flops_per_second), source)
                         : source;
            }));
  std::string out = section_begin("origin") + table.html();
  for (size_t i = 0; i < runs.size(); ++i)
    if (runs[i].config)
      out += fmt::format("<details><summary>config{}</summary><pre>{}</pre></details>",
                         runs.size() > 1 ? " of " + html(runs[i].name, 60) : "",
                         html(to_toml(*runs[i].config), 30000));
  return out + "</section>\n";
}

}  // namespace ripstop
