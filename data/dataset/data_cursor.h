#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ripstop {

/// Maximum number of data sets of a run.
inline constexpr size_t kMostDataSets = 100;

/// A position in one data set: the next sequence to use, by number within `epoch`.
struct SetCursor {
  int64_t epoch = 0;
  int64_t sequence = 0;
  int64_t tokens = 0;  ///< rows of all sequences used so far, without padding
  friend bool operator==(const SetCursor&, const SetCursor&) = default;
};

/// A position in the endless series of epochs: the next sequence to use, by number within `epoch`. An epoch
/// holds the sequences of all data sets. With data.weights, epoch 0 never ends: each sequence is drawn.
struct DataCursor {
  int64_t epoch = 0;
  int64_t sequence = 0;
  std::vector<SetCursor> sets = {};  ///< the position in each data set; empty if there is only one
  friend bool operator==(const DataCursor&, const DataCursor&) = default;
};

}  // namespace ripstop
