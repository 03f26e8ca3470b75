// Parts of events in metrics.jsonl for each of several data sets, in the order of data.directories.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>

namespace ripstop {

/// A data set's part of a step.
struct SetStep {
  int64_t tokens = 0;                                      ///< tokens of this step
  int64_t tokens_seen = 0;                                 ///< tokens of all steps since step 1
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< mean over the set's targets; NaN without any
  static void fields(auto& self, auto& field) {
    field("tokens", self.tokens);
    field("tokens_seen", self.tokens_seen);
    field("loss", self.loss);
  }
};

/// The validation of a data set.
struct SetScores {
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< NaN if the set is not validated
  int64_t target_count = 0;
  std::optional<double> rouge1, rouge2, rougeL;  ///< F-measures; nullopt without generated texts
  static void fields(auto& self, auto& field) {
    field("loss", self.loss);
    field("targets", self.target_count);
    field.if_known("rouge1", self.rouge1);
    field.if_known("rouge2", self.rouge2);
    field.if_known("rougeL", self.rougeL);
  }
};

}  // namespace ripstop
