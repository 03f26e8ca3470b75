// The embedding and the head of a model that gets more token ids than it was stored with.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_layout.h"
#include "train/config/run_config.h"

namespace ripstop {

/// Initial values of the rows of token ids that a stored model lacks (model.resize_vocabulary).
struct VocabularyGrowth {
  ResizeVocabulary how = ResizeVocabulary::kNone;
  uint64_t seed = 0;  ///< seed for kNormal
};

/// Reads units with tables [V', C] from a stored model with tables [V, C], V' > V. In each column, the rows
/// [V, V') get the mean of all V rows (kMean), or normal random numbers with the mean and variance of the V
/// rows, keyed by seed, name, row and column (kNormal); equal on every mesh. Sums are float64.
class GrownTables {
 public:
  /// Overwrites unit.master with shard fsdp_index of a unit of the stored model. Any thread may call.
  using ReadStored = std::function<void(int64_t fsdp_index, const UnitStates& unit)>;

  GrownTables(const VocabularyGrowth& growth, int64_t stored_rows, ReadStored read);

  /// Whether the unit has a table with more rows than in the stored model.
  bool has(const UnitSpec& unit) const;
  /// Overwrites `to` with the elements [begin, end) of the flat buffer of `layout`; padding becomes zero. The
  /// first call that needs new rows of a table reads all of it, in pieces of 1 MiB. Any thread may call.
  void read(const UnitLayout& layout, int64_t begin, int64_t end, float* to);

 private:
  /// Statistics of each column of a table.
  struct Columns {
    std::vector<double> mean, deviation;
  };

  void read_rows(const ParameterSpec& parameter, int64_t first, int64_t count, float* to);
  void add_row(const ParameterSpec& parameter, int64_t row, int64_t column, int64_t columns, float* to);
  const Columns& columns_of(const ParameterSpec& parameter);

  VocabularyGrowth growth_;
  int64_t stored_rows_;
  ReadStored read_;
  std::mutex mutex_;                        // guards columns_, whose elements never move
  std::map<std::string, Columns> columns_;  // by the name of the table
};

}  // namespace ripstop
