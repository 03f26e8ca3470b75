#include "train/check/rank_findings.h"

#include <cstring>
#include <type_traits>

namespace ripstop {
namespace {

// Appends values to bytes.
class ByteSink {
 public:
  template <class T>
  void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Takes them out again.
class ByteSource {
 public:
  explicit ByteSource(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
  void operator()(T& value) {
    RIPSTOP_CHECK(at_ + sizeof value <= bytes_.size(), "{} bytes of findings", bytes_.size());
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
  }
  void check_all_taken() const {
    RIPSTOP_CHECK(at_ == bytes_.size(), "{} of {} bytes of findings", at_, bytes_.size());
  }

 private:
  const std::string& bytes_;
  size_t at_ = 0;
};

// Calls each(field) for all fields, in one order.
template <class Findings, class Each>
void for_fields(Findings& findings, Each& each) {
  for (auto* steps : {&findings.steps, &findings.reference})
    for (auto& step : *steps) {
      each(step.loss);
      each(step.gradient_norm);
      each(step.target_count);
      each(step.skipped);
    }
  for (size_t state = 0; state < kComparedStates; ++state) {
    for (auto& error : findings.errors[state]) {
      each(error.squared_error);
      each(error.worst_block);
      each(error.row);
      each(error.column);
      each(error.finite);
    }
    for (auto& norm : findings.norms[state]) each(norm);
    for (auto& unit : findings.units[state]) {
      each(unit.shard_hash);
      each(unit.replicated_hash);
      each(unit.padding);
    }
  }
}

}  // namespace

std::string to_bytes(const RankFindings& findings) {
  ByteSink sink;
  for_fields(findings, sink);
  return sink.take();
}

RankFindings findings_of(const std::string& bytes, size_t parameters, size_t units) {
  RankFindings findings;
  for (size_t state = 0; state < kComparedStates; ++state) {
    findings.errors[state].resize(parameters);
    findings.norms[state].resize(parameters);
    findings.units[state].resize(units);
  }
  ByteSource source(bytes);
  for_fields(findings, source);
  source.check_all_taken();
  return findings;
}

}  // namespace ripstop
