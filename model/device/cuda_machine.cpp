#include "model/device/cuda_machine.h"

#include <fmt/format.h>

#include <sstream>
#include <vector>

namespace ripstop {

bool version_is_older(const std::string& version, const std::string& than) {
  const auto numbers = [](const std::string& text) {
    std::istringstream words(text);
    std::vector<int> all;
    char dot = 0;
    for (int number = 0; words >> number; words >> dot) all.push_back(number);
    return all;
  };
  return numbers(version) < numbers(than);  // "12" < "12.1"
}

std::string CudaLibrary::complaint() const {
  if (found.empty()) return fmt::format("{} was not found", name);
  if (version_is_older(found, oldest))
    return fmt::format("{} {} is older than {}, the oldest that works", name, found, oldest);
  return "";
}

}  // namespace ripstop
