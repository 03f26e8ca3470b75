// Which algorithm was fastest for a product on this kind of GPU, kept in a file between runs.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace ripstop::cuda {

/// An algorithm as cuBLASLt describes it: opaque, of value to the same version of the library only.
using AlgorithmBytes = std::array<unsigned char, 64>;

struct GemmChoice {
  AlgorithmBytes algorithm{};
  double microseconds = 0;  ///< what it took when it was chosen
};

/// The choices of one kind of GPU and one version of cuBLASLt, in a text file: a first line that says whose
/// they are, then one line a product: its gemm_name, the algorithm in hexadecimal, microseconds. A file that
/// is missing, of another GPU or version, or damaged counts as empty, line by line; one that cannot be
/// written is done without: the next run measures again. Ranks that write at once lose lines to each other,
/// never the file.
class GemmChoices {
 public:
  /// No path: nothing is read or kept.
  GemmChoices(std::optional<std::filesystem::path> path, std::string owner);

  /// Null where the product was not measured yet.
  const GemmChoice* find(const std::string& gemm) const;
  /// Keeps a choice, and writes the file with what other processes added to it meanwhile.
  void add(const std::string& gemm, const GemmChoice& choice);

 private:
  std::map<std::string, GemmChoice> read() const;
  void write() const;

  std::optional<std::filesystem::path> path_;
  std::string owner_;
  std::map<std::string, GemmChoice> choices_;
};

/// $RIPSTOP_CACHE, else $XDG_CACHE_HOME/ripstop, else $HOME/.cache/ripstop; none where none of them is set.
std::optional<std::filesystem::path> cache_folder();

/// The file in cache_folder() for an owner such as "NVIDIA H100 80GB HBM3, cuBLASLt 130100".
std::optional<std::filesystem::path> gemm_choices_path(const std::string& owner);

}  // namespace ripstop::cuda
