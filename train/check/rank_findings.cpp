#include "train/check/rank_findings.h"

#include <cstring>
#include <span>

namespace ripstop {
namespace {

// Calls each(bytes) for each array of the findings, always in the same order.
template <class Findings, class Each>
void for_arrays(Findings& findings, Each each) {
  const auto bytes_of = [&](auto& array) {
    if constexpr (std::is_const_v<Findings>)
      each(std::as_bytes(std::span(array)));
    else
      each(std::as_writable_bytes(std::span(array)));
  };
  bytes_of(findings.steps);
  bytes_of(findings.reference);
  for (size_t state = 0; state < kComparedStates; ++state) {
    bytes_of(findings.errors[state]);
    bytes_of(findings.norms[state]);
    bytes_of(findings.units[state]);
  }
}

}  // namespace

std::string to_bytes(const RankFindings& findings) {
  std::string bytes;
  for_arrays(findings, [&](std::span<const std::byte> array) {
    bytes.append(reinterpret_cast<const char*>(array.data()), array.size());
  });
  return bytes;
}

RankFindings findings_of(const std::string& bytes, size_t parameters, size_t units) {
  RankFindings findings;
  for (size_t state = 0; state < kComparedStates; ++state) {
    findings.errors[state].resize(parameters);
    findings.norms[state].resize(parameters);
    findings.units[state].resize(units);
  }
  size_t at = 0;
  for_arrays(findings, [&](std::span<std::byte> array) {
    RIPSTOP_CHECK(at + array.size() <= bytes.size(), "{} bytes of findings", bytes.size());
    if (!array.empty()) std::memcpy(array.data(), bytes.data() + at, array.size());
    at += array.size();
  });
  RIPSTOP_CHECK(at == bytes.size(), "{} of {} bytes of findings", at, bytes.size());
  return findings;
}

}  // namespace ripstop
