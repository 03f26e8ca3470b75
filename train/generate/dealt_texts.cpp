#include "train/generate/dealt_texts.h"

#include "model/core/error.h"
#include "model/core/number.h"

namespace ripstop {
namespace {

// Reads what `packed` wrote.
std::vector<std::string> unpacked(std::string_view rest) {
  std::vector<std::string> texts;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::optional<int64_t> length = parse_whole_number(rest.substr(0, colon));
    RIPSTOP_CHECK(length && colon < rest.size() && *length < std::ssize(rest) - static_cast<int64_t>(colon),
                  "packed texts are damaged {} bytes before their end", rest.size());
    const auto bytes = static_cast<size_t>(*length);
    texts.emplace_back(rest.substr(colon + 1, bytes));
    rest.remove_prefix(colon + 1 + bytes);
  }
  return texts;
}

}  // namespace

// With lengths, because a text may hold any byte.
std::string packed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += fmt::format("{}:", text.size()) + text;
  return all;
}

std::vector<std::string> merge_dealt(const std::vector<std::string>& replicas) {
  std::vector<std::vector<std::string>> dealt;
  for (const std::string& replica : replicas) dealt.push_back(unpacked(replica));
  std::vector<std::string> merged;
  size_t given = 0;
  for (const auto& texts : dealt) given += texts.size();
  for (size_t i = 0; i < given; ++i) {
    std::vector<std::string>& texts = dealt[i % dealt.size()];
    // Fails if a replica skipped one: then no text after it would belong to its prompt.
    RIPSTOP_CHECK(i / dealt.size() < texts.size(), "replica {} has {} texts of {} over {} replicas",
                  i % dealt.size(), texts.size(), given, dealt.size());
    merged.push_back(std::move(texts[i / dealt.size()]));
  }
  return merged;
}

std::vector<std::string> gather_dealt(Communicator& world, int64_t tensor,
                                      const std::vector<std::string>& own) {
  // All ranks of a tensor group have the same texts: send them once.
  const bool speaks = world.rank() % tensor == 0;
  const std::vector<std::string> all = world.all_gather_text(speaks ? packed(own) : "");
  std::vector<std::string> replicas;
  for (int64_t rank = 0; rank < std::ssize(all); rank += tensor)
    replicas.push_back(all[static_cast<size_t>(rank)]);
  return merge_dealt(replicas);
}

}  // namespace ripstop
