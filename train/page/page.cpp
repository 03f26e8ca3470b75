#include "train/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "data/text/utf8.h"
#include "train/page/chart.h"
#include "train/page/html_text.h"
#include "train/page/page_parts.h"
#include "train/page/page_style.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

using Runs = std::span<const RunRecord>;

constexpr std::pair<std::string_view, std::string_view> kSections[] = {
    {"curves", "Curves"},
    {"scores", "Scores"},
    {"texts", "Texts"},
    {"configs", "What differs between the configs"},
    {"time", "Where the time went"},
    {"memory", "Plan beside measured"},
    {"history", "Restarts and warnings"},
    {"origin", "Origin"}};

// A loss chart for each data set of the runs that have several data sets.
std::vector<Chart> charts_of_sets(Runs runs) {
  std::vector<Chart> charts;
  for (const RunRecord& run : runs)
    for (const std::string& set : run.sets)
      if (std::ranges::find(charts, set, &Chart::set) == charts.end())
        charts.push_back({.series = Series::kLoss,
                          .title = fmt::format("Loss of {}", html(set)),
                          .note = "of this data set's targets alone (dots: over its validation split)",
                          .smooth = true,
                          .from_zero = false,
                          .may_be_logarithmic = true,
                          .with_validation = true,
                          .set = set});
  return charts;
}

std::vector<Chart> charts_of(Runs runs) {
  const int64_t mean = runs.size() == 1 ? smoothed_steps(runs[0]) : 0;
  const std::string smooth =
      mean > 1    ? fmt::format("thin: all steps; bold: mean of {}", number_text(static_cast<double>(mean)))
      : mean == 1 ? "every step"
                  : "thin: all steps; bold: means of neighbours";
  std::vector<Chart> charts = {
      {.series = Series::kLoss,
       .title = "Loss",
       .note = "mean surprise at the next token, in nats: lower is better (" + smooth +
               "; dots: over the validation split)",
       .smooth = true,
       .from_zero = false,
       .may_be_logarithmic = true,
       .with_validation = true},
      {.series = Series::kValidation,
       .title = "Validation loss",
       .note = "on documents that training does not see; a rise means overfitting",
       .dots = true,
       .from_zero = false,
       .may_be_logarithmic = true},
      {.series = Series::kRougeL,
       .title = "ROUGE-L",
       .note = "longest common word sequence with the reference: 1 is equal",
       .dots = true},
      {.series = Series::kRouge1,
       .title = "ROUGE-1",
       .note = "words in common with the reference",
       .dots = true},
      {.series = Series::kRouge2, .title = "ROUGE-2", .note = "pairs of words in common", .dots = true},
      {.series = Series::kLearningRate, .title = "Learning rate", .note = "by the schedule"},
      {.series = Series::kNorm,
       .title = "Gradient norm",
       .note = "before clipping; spikes are hard batches or an unstable run",
       .smooth = true,
       .may_be_logarithmic = true},
      {.series = Series::kSpeed, .title = "Tokens a second", .note = "on all ranks together", .smooth = true},
      {.series = Series::kUtilization,
       .title = "Model FLOPs utilization",
       .note = "share of the devices' peak",
       .unit = Unit::kShare,
       .smooth = true},
  };
  for (const MeshAxis axis : kMeshAxes)
    charts.push_back({.series = exposed(axis),
                      .title = fmt::format("Exposed communication: {}", to_string(axis)),
                      .note = "share of the step in which computing waits for this axis of the mesh",
                      .unit = Unit::kShare,
                      .smooth = true});
  charts.push_back({.series = Series::kMemory,
                    .title = "Peak memory",
                    .note = "of rank 0, since its start",
                    .unit = Unit::kBytes});
  const std::vector<Chart> of_sets = charts_of_sets(runs);
  charts.insert(charts.begin() + 2, of_sets.begin(), of_sets.end());  // after the losses over all data
  return charts;
}

bool has_numbers(Runs runs, const Chart& chart) {
  const bool is_exposed = chart.series >= Series::kExposed && chart.series < Series::kMemory;
  for (const RunRecord& run : runs)
    for (const Column& column : run.columns.all())
      for (const Series series : {chart.series, chart.set.empty() ? chart.series : Series::kValidation})
        if (const Extent& numbers = numbers_of(chart, run, column, series);
            numbers.count > 0 && (!is_exposed || numbers.most > 0))
          return true;
  return false;
}

std::string figure(const Chart& chart, Runs runs, Abscissa abscissa, const std::string& legend) {
  const bool is_wide = chart.series == Series::kLoss && chart.set.empty();
  std::string out = fmt::format("<figure{}><h3>{}</h3><figcaption>{}</figcaption>{}",
                                is_wide ? " class=\"wide\"" : "", chart.title, chart.note, legend);
  if (is_wide)
    out += fmt::format("<div class=\"wide-only\">{}</div><div class=\"small-only\">{}</div>",
                       draw(chart, runs, abscissa, true), draw(chart, runs, abscissa, false));
  else
    out += draw(chart, runs, abscissa, false);
  return out + "</figure>\n";
}

std::string curves(Runs runs) {
  std::string out = section_begin("curves"), legend;
  if (std::ranges::none_of(runs, [](const RunRecord& run) { return run.last_step.has_value(); }))
    return out + "<p class=\"note\">No step was made.</p></section>\n";
  if (runs.size() > 1) {
    legend = "<div class=\"legend\">";
    out += "<div class=\"axes\">along: ";
    for (const Abscissa abscissa : kAbscissas)
      out += fmt::format("<label><input type=\"radio\" name=\"x\" id=\"x-{0}\"{1}> {0}</label>",
                         to_string(abscissa), abscissa == Abscissa::kStep ? " checked" : "");
    out += "</div>";
    for (size_t i = 0; i < runs.size(); ++i) legend += fmt::format("<span>{}</span>", name_of(runs, i, 40));
    legend += "</div>";
  }
  for (const Abscissa abscissa : kAbscissas) {
    if (runs.size() == 1 && abscissa != Abscissa::kStep) break;  // other axes are for comparisons
    out += fmt::format("<div class=\"charts by-{}\">\n", to_string(abscissa));
    for (const Chart& chart : charts_of(runs))
      if (has_numbers(runs, chart)) out += figure(chart, runs, abscissa, legend);
    out += "</div>";
  }
  return out +
         "<p class=\"note\">Where steps share a pixel, the thin lines span their least and most. Dotted "
         "upright lines: "
         "restarts, thicker ones on another mesh. Hover over a chart for its numbers.</p></section>\n";
}

std::string head(Runs runs, const PageOptions& options) {
  std::vector<std::string> all;
  for (const RunRecord& run : runs) all.push_back(html(run.name, 60));
  const std::string names = some_of(all, 3);
  return fmt::format(
      "{}<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{} - ripstop report</title>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "img-src "
      "data:\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<link rel=\"icon\" href=\"data:,\">\n<style>{}{}</style></head>\n<body><main>"
      "<h1>Training report: {}</h1><p class=\"dim\">made {} by ripstop {}</p>\n",
      kPageBegin, names, kPageStyle, colors(), names, time_text(options.time, options.utc),
      html(options.version));
}

}  // namespace

std::string section_begin(std::string_view id) {
  const auto section = std::ranges::find(kSections, id, [](const auto& each) { return each.first; });
  return fmt::format("<section id=\"{}\"><h2>{}</h2>", id, section->second);
}

size_t columns_of_each(size_t runs) {
  return std::clamp<size_t>(1280 / std::max<size_t>(runs, 1), 128, 640);
}

std::string time_text(double seconds, bool utc) {
  std::string text = clock_text(seconds, "%FT%R%z", utc);
  return text == "?" ? text : text.insert(text.size() - 2, ":");  // +0100 becomes +01:00
}

std::string page(Runs runs, const PageOptions& options) {
  const std::string body = curves(runs) + scores(runs) + texts(runs, options) + config_differences(runs) +
                           time_use(runs) + memory_use(runs) + history(runs, options) + origin(runs, options);
  std::string links;
  for (const auto& [id, title] : kSections)
    if (body.find(fmt::format("<section id=\"{}\">", id)) != body.npos)
      links += fmt::format("<a href=\"#{}\">{}</a>", id, title);
  return head(runs, options) + "<nav>" + links + "</nav>\n" + story(runs) + overview(runs) + body +
         "</main></body></html>\n";
}

}  // namespace ripstop
