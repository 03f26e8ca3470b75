#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "tests/data/scratch_directory.h"

namespace ripstop {

/// A folder like /sys/class/powercap on a machine with RAPL: links to zones, which lie in each other. Source:
/// Linux, Documentation/power/powercap/powercap.rst.
class PowercapTree {
 public:
  /// In counters of 32 bits of 1/16384 J, as of Intel's servers: 262 kJ.
  static constexpr int64_t kRange = 262'143'328'850;

  explicit PowercapTree(const std::filesystem::path& root) : root_(root) {
    std::filesystem::create_directories(path());
    add("intel-rapl", "");  // the control type, which is no zone
  }
  std::filesystem::path path() const { return root_ / "class/powercap"; }
  std::filesystem::path file(const std::string& zone, const std::string& name) const {
    return path() / zone / name;
  }

  /// `zone`: "intel-rapl:0", or a part of it, "intel-rapl:0:1".
  void add(const std::string& zone, const std::string& name, int64_t microjoules = 0,
           int64_t range = kRange) {
    std::filesystem::path real = root_ / "devices/virtual/powercap" / zone.substr(0, zone.find(':'));
    for (size_t end = zone.find(':'); end != zone.npos;) {
      end = zone.find(':', end + 1);
      real /= zone.substr(0, end);
    }
    std::filesystem::create_directories(real);
    std::filesystem::create_directory_symlink(real, path() / zone);
    write_bytes(real / "enabled", "0\n");
    if (zone.find(':') == zone.npos) return;
    write_bytes(real / "name", name + "\n");
    write_bytes(real / "max_energy_range_uj", std::to_string(range) + "\n");
    set(zone, microjoules);
  }
  void set(const std::string& zone, int64_t microjoules) {
    energy_[zone] = microjoules;
    write(zone, "energy_uj", std::to_string(microjoules) + "\n");
  }
  /// Adds to a counter, which wraps around at kRange.
  void take(const std::string& zone, double joules) {
    set(zone, (energy_.at(zone) + static_cast<int64_t>(joules * 1e6)) % kRange);
  }
  /// Replaces a file at once, so that no reader finds it empty.
  void write(const std::string& zone, const std::string& name, const std::string& text) const {
    write_bytes(file(zone, "new"), text);
    std::filesystem::rename(file(zone, "new"), file(zone, name));
  }

 private:
  std::filesystem::path root_;
  std::map<std::string, int64_t> energy_;
};

}  // namespace ripstop
