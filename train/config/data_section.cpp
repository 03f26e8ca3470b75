#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "data/dataset/data_cursor.h"
#include "train/config/config_keys.h"
#include "train/config/run_config.h"

namespace ripstop {

std::vector<double> DataSection::shares() const {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> shares;
  for (const double weight : weights) shares.push_back(weight / sum);
  return shares;
}

bool DataSection::draws_like(const DataSection& other) const {
  constexpr double kRounding = 1e-12;
  return std::ranges::equal(shares(), other.shares(),
                            [](double a, double b) { return std::abs(a - b) < kRounding; });
}

std::optional<DataSection::Problem> DataSection::problem(bool has_epochs) const {
  const char* const example = "directories = [\"sets/a\", \"sets/b\"] under [data]";
  if (directories.empty() && !directory.empty()) {
    if (weights.empty()) return std::nullopt;
    return Problem{"data.weights",
                   "'data.weights' are of data sets in 'data.directories', which is not given", example};
  }
  if (!directory.empty())
    return Problem{"data.directories", "'data.directory' and 'data.directories' are both given",
                   "keep one of them"};
  const auto plain = [](const std::string& path) {
    return (std::filesystem::path(path) / "").lexically_normal();
  };
  const auto count = [&](const std::string& path) {
    return std::ranges::count(directories, plain(path), plain);
  };
  if (directories.empty() || directories.size() > kMostDataSets || std::ranges::count(directories, "") > 0)
    return Problem{
        "data.directories",
        fmt::format("'data.directories' must have 1 to {} paths, none of them empty", kMostDataSets),
        example};
  for (const std::string& path : directories)
    if (count(path) > 1)
      return Problem{"data.directories", fmt::format("'data.directories' has {} twice", toml_string(path)),
                     "data.weights decide how often a set comes"};
  if (weights.empty()) return std::nullopt;
  if (weights.size() != directories.size())
    return Problem{"data.weights",
                   fmt::format("'data.weights' has {} numbers, 'data.directories' {} paths", weights.size(),
                               directories.size()),
                   "give one weight for each data set"};
  if (std::ranges::count(weights, 0.0) == std::ssize(weights))
    return Problem{"data.weights", "'data.weights' are all 0", "a weight above 0 gives a set sequences"};
  if (!has_epochs) return std::nullopt;
  return Problem{"train.epochs",
                 "'train.epochs' cannot stand beside 'data.weights', with which each data set has epochs of "
                 "its own",
                 "give train.steps"};
}

}  // namespace ripstop
