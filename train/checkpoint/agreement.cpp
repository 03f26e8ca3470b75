#include "train/checkpoint/agreement.h"

#include <exception>
#include <new>
#include <optional>
#include <system_error>
#include <vector>

#include "model/error.h"

namespace ripstop {
namespace {

// code, what and hint in one text
constexpr char kSeparator = '\x1f';

std::string encode(const Error& error) {
  return fmt::format("{}{}{}{}{}", static_cast<int>(error.code()), kSeparator, error.what(), kSeparator,
                     error.hint());
}

Error decode(const std::string& text, size_t rank, size_t ranks, int64_t others) {
  const size_t first = text.find(kSeparator), second = text.find(kSeparator, first + 1);
  std::string what = text.substr(first + 1, second - first - 1);
  if (ranks > 1) what = fmt::format("rank {}: {}", rank, what);
  if (others > 0) what += fmt::format(" (and {} more ranks failed)", others);
  return {static_cast<ExitCode>(std::stoi(text.substr(0, first))), what, text.substr(second + 1)};
}

}  // namespace

std::string failure_of(FunctionRef<void()> body) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    if (error.code() == ExitCode::kCommunication) throw;
    return encode(error);
  } catch (const std::bad_alloc&) {
    return encode(Error(ExitCode::kResources, "out of host memory"));
  } catch (const std::system_error& error) {
    return encode(Error(ExitCode::kStorage, error.what()));
  } catch (const std::exception& error) {
    return encode(Error(ExitCode::kBug, error.what(), "please report this"));
  }
}

void agree(Communicator& world, const std::string& failure) {
  const std::vector<std::string> failures = world.all_gather_text(failure);
  std::optional<size_t> first;
  int64_t others = 0;
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    if (first) ++others;
    if (!first) first = rank;
  }
  if (first) throw decode(failures[*first], *first, failures.size(), others);
}

std::string text_of_rank_0(Communicator& world, const std::string& text) {
  return world.all_gather_text(world.rank() == 0 ? text : std::string()).front();
}

}  // namespace ripstop
