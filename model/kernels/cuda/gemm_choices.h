// The fastest algorithm of each product on this kind of GPU, kept in a file between runs.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace ripstop::cuda {

/// An algorithm in cuBLASLt's own form, which is opaque and valid only for the version of the library that
/// made it.
using AlgorithmBytes = std::array<unsigned char, 64>;

/// The algorithm chosen for a product.
struct GemmChoice {
  AlgorithmBytes algorithm{};
  double microseconds = 0;  ///< time of the product when the algorithm was chosen
};

/// The choices for one kind of GPU and one version of cuBLASLt, in a text file. The first line names these
/// two, the owner of the file; each further line has the gemm_name of a product, its algorithm in
/// hexadecimal, and microseconds. A missing file and a file of another owner count as empty; damaged lines
/// are skipped. If the file cannot be written, the next run measures again. If several ranks write at the
/// same time, some lines may be lost, but the file stays valid.
class GemmChoices {
 public:
  /// Without a path, nothing is read or written.
  GemmChoices(std::optional<std::filesystem::path> path, std::string owner);

  /// Returns the choice for the product with this gemm_name; null if the product was not measured yet.
  const GemmChoice* find(const std::string& gemm) const;
  /// Adds a choice and writes the file, which then also has the choices that other processes have added to
  /// it.
  void add(const std::string& gemm, const GemmChoice& choice);

 private:
  /// The choices in the file; empty if it is missing or belongs to another owner.
  std::map<std::string, GemmChoice> read() const;
  void write() const;

  std::optional<std::filesystem::path> path_;
  std::string owner_;
  std::map<std::string, GemmChoice> choices_;
};

/// The folder for files that ripstop can make again: $RIPSTOP_CACHE, else $XDG_CACHE_HOME/ripstop, else
/// $HOME/.cache/ripstop; nullopt if none of them is set.
std::optional<std::filesystem::path> cache_folder();

/// The file in cache_folder() for an owner such as "NVIDIA H100 80GB HBM3, cuBLASLt 130100".
std::optional<std::filesystem::path> gemm_choices_path(const std::string& owner);

}  // namespace ripstop::cuda
