#include "train/commands/fatal_line.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace ripstop {
namespace {

std::string quoted(const std::string& text) {
  using Json = nlohmann::json;
  // Paths may hold any byte, and a failure must not fail while it is told: replace, do not throw.
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string fatal_line(const Error& error, int64_t rank) {
  return fmt::format("FATAL code={} rank={} step={} what={} hint={}", static_cast<int>(error.code()), rank,
                     error.step() ? std::to_string(*error.step()) : "-", quoted(error.what()),
                     quoted(error.hint()));
}

}  // namespace ripstop
