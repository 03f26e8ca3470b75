// Storage errors are ignored on purpose, because the file only saves time.
#include "model/kernels/cuda/gemm_choices.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

namespace ripstop::cuda {
namespace {

// If the format changes, change the number, so that files of the old format count as empty.
constexpr const char* kFormat = "ripstop gemm choices 1";

std::string first_line(const std::string& owner) {
  return fmt::format("{}: {}", kFormat, owner);
}

std::string to_hex(const AlgorithmBytes& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<AlgorithmBytes> from_hex(const std::string& text) {
  AlgorithmBytes bytes{};
  if (text.size() != 2 * bytes.size()) return std::nullopt;
  for (const char c : text)
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return std::nullopt;
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  return bytes;
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

GemmChoices::GemmChoices(std::optional<std::filesystem::path> path, std::string owner)
    : path_(std::move(path)), owner_(std::move(owner)), choices_(read()) {}

const GemmChoice* GemmChoices::find(const std::string& gemm) const {
  const auto found = choices_.find(gemm);
  return found == choices_.end() ? nullptr : &found->second;
}

void GemmChoices::add(const std::string& gemm, const GemmChoice& choice) {
  // merge() adds only products that choices_ lacks, so a choice in memory wins over the file's.
  choices_.merge(read());
  choices_[gemm] = choice;
  write();
}

std::map<std::string, GemmChoice> GemmChoices::read() const {
  std::map<std::string, GemmChoice> choices;
  if (!path_) return choices;
  std::ifstream file(*path_);
  std::string line;
  if (!std::getline(file, line) || line != first_line(owner_)) return choices;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, hex, rest;
    GemmChoice choice;
    // A line must have exactly three words. Skips any other line, such as one that was cut off.
    if (!(words >> name >> hex >> choice.microseconds) || words >> rest) continue;
    const auto algorithm = from_hex(hex);
    if (!algorithm || !std::isfinite(choice.microseconds) || choice.microseconds <= 0) continue;
    choice.algorithm = *algorithm;
    choices[name] = choice;
  }
  return choices;
}

void GemmChoices::write() const {
  if (!path_) return;
  std::error_code ignored;
  std::filesystem::create_directories(path_->parent_path(), ignored);
  // Writes a new file and renames it, so that readers never see half a file. The name of the new file has the
  // host and the process id, since ranks of several nodes may share the folder.
  std::filesystem::path partial = *path_;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  partial += fmt::format(".{}.{}", host, getpid());
  {
    std::ofstream file(partial, std::ios::trunc);
    file << first_line(owner_) << '\n';
    for (const auto& [name, choice] : choices_)
      file << fmt::format("{} {} {:.3f}\n", name, to_hex(choice.algorithm), choice.microseconds);
    file.close();
    if (!file) {
      std::filesystem::remove(partial, ignored);
      return;
    }
  }
  std::filesystem::rename(partial, *path_, ignored);
  if (ignored) std::filesystem::remove(partial, ignored);
}

std::optional<std::filesystem::path> cache_folder() {
  if (const char* folder = variable("RIPSTOP_CACHE")) return folder;
  if (const char* folder = variable("XDG_CACHE_HOME")) return std::filesystem::path(folder) / "ripstop";
  if (const char* folder = variable("HOME")) return std::filesystem::path(folder) / ".cache" / "ripstop";
  return std::nullopt;
}

std::optional<std::filesystem::path> gemm_choices_path(const std::string& owner) {
  // Each run of characters other than letters and digits becomes one dash.
  std::string name = "gemm-";
  for (const char c : owner) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain || name.back() != '-') name += plain ? c : '-';
  }
  const auto folder = cache_folder();
  return folder ? std::optional(*folder / (name + ".txt")) : std::nullopt;
}

}  // namespace ripstop::cuda
