#include "model/device/cuda_machine.h"

#include <fmt/format.h>

#include <sstream>

namespace ripstop {

bool version_is_older(const std::string& version, const std::string& than) {
  std::istringstream a(version), b(than);
  // If one version continues the other, the longer one is newer: "12" < "12.1".
  for (;;) {
    int x = 0, y = 0;
    char dot = 0;
    const bool has_x = static_cast<bool>(a >> x), has_y = static_cast<bool>(b >> y);
    if (!has_y) return false;
    if (!has_x || x != y) return !has_x || x < y;
    a >> dot;
    b >> dot;
  }
}

std::string CudaLibrary::complaint() const {
  if (found.empty()) return fmt::format("{} was not found", name);
  if (version_is_older(found, oldest))
    return fmt::format("{} {} is older than {}, the oldest that works", name, found, oldest);
  return "";
}

}  // namespace ripstop
