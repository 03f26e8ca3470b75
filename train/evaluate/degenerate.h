#pragma once
#include <cstdint>
#include <string>

#include "train/evaluate/predictions.h"

namespace ripstop {

/// Signs that a generated text is no real summary. Words are separated by white space.
struct Degenerate {
  bool at_limit = false;  ///< Prediction::at_limit
  bool empty = false;     ///< no word
  bool repeats = false;   ///< four words in a row occur twice
  /// The summary begins with the document's first sentence, which ends at the first word, from the fourth on,
  /// that ends with . ! ? or is the last of its line.
  bool copies = false;
};

Degenerate find_degenerate(const Prediction& prediction);

/// Numbers of summaries with each sign.
struct DegenerateCounts {
  int64_t at_limit = 0, empty = 0, repeats = 0, copies = 0;

  void add(const Degenerate& signs);
};

/// A line for people, with its line end.
std::string to_text(const DegenerateCounts& counts);

}  // namespace ripstop
