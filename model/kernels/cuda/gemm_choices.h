#pragma once
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace ripstop::cuda {

/// cuBLASLt's own form of an algorithm, valid only for the version of the library that made it.
using AlgorithmBytes = std::array<unsigned char, 64>;

struct GemmChoice {
  AlgorithmBytes algorithm{};
  double microseconds = 0;  ///< measured time of the product
};

/// The fastest algorithms on one kind of GPU with one version of cuBLASLt, kept in a text file between runs.
/// The first line names this GPU and version (the owner). Each further line has the gemm_name of a product,
/// its algorithm in hexadecimal, and microseconds. A missing file and a file of another owner count as empty;
/// damaged lines are skipped. If several ranks write at once, lines may be lost, but the file stays valid.
class GemmChoices {
 public:
  /// Without a path, nothing is read or written.
  GemmChoices(std::optional<std::filesystem::path> path, std::string owner);

  /// `gemm`: gemm_name. Returns null if the product was not measured yet.
  const GemmChoice* find(const std::string& gemm) const;
  /// Adds a choice and writes the file, keeping the choices that other processes have written.
  void add(const std::string& gemm, const GemmChoice& choice);

 private:
  std::map<std::string, GemmChoice> read() const;
  void write() const;

  std::optional<std::filesystem::path> path_;
  std::string owner_;
  std::map<std::string, GemmChoice> choices_;
};

/// The folder for files that ripstop can make again: $RIPSTOP_CACHE, else $XDG_CACHE_HOME/ripstop, else
/// $HOME/.cache/ripstop; nullopt if all are unset or empty.
std::optional<std::filesystem::path> cache_folder();

/// The file of choices of `owner` ("NVIDIA H100 80GB HBM3, cuBLASLt 130100") in cache_folder(), if any.
std::optional<std::filesystem::path> gemm_choices_path(const std::string& owner);

}  // namespace ripstop::cuda
