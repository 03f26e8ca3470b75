// Invented news articles. A tiny model can learn to summarize them, but only by reading them.
//
// An article reports a few events. An authority confirms one of them, which is the summary; the others are
// mere claims. The confirmed event is never the first, so a copy of the first sentence is no summary. Every
// event names a person, a place and a day. Names, places and figures of validation and test never occur in
// train, so a model must copy them from the article.
#include <algorithm>
#include <array>

#include "data/corpus/corpus.h"
#include "data/dataset/pack_plan.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr std::array kSyllables = {"ba", "be", "bi", "bo", "da", "de", "di", "do", "fa", "fe", "ga", "go",
                                   "ha", "he", "ja", "jo", "ka", "ke", "ki", "ko", "la", "le", "li", "lo",
                                   "ma", "me", "mi", "mo", "na", "ne", "ni", "no", "pa", "pe", "pi", "po",
                                   "ra", "re", "ri", "ro", "sa", "se", "si", "so", "ta", "te", "ti", "to",
                                   "va", "ve", "wa", "we", "ya", "yo", "za", "zo"};
constexpr std::array kVerbs = {"opened",  "closed",  "bought",    "sold",   "painted",
                               "rebuilt", "visited", "inspected", "robbed", "flooded"};
constexpr std::array kObjects = {"bridge",  "school",  "hospital", "library", "museum", "factory",
                                 "stadium", "harbour", "market",   "church",  "tower",  "station",
                                 "bakery",  "cinema",  "theatre",  "farm",    "mill",   "garden"};
constexpr std::array kDays = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};
constexpr std::array kConfirmed = {"Police confirmed that", "The council confirmed that",
                                   "Officials confirmed that"};
// Openings that make an event a mere claim. A figure replaces {}.
constexpr std::array kClaimed = {"A neighbour thought that", "A rival claimed that",
                                 "Nobody believed that",     "One of {} visitors heard that",
                                 "A caller said that",       "Last year {} papers wrote that"};
constexpr int64_t kSentences = 3;
constexpr int64_t kHeldOutNames = 200;  // names held out for each of validation and test

/// Random numbers by SplitMix64.
class Random {
 public:
  explicit Random(uint64_t key) : state_(key) {}
  // A number below `bound`. std::uniform_int_distribution would differ between standard libraries.
  uint64_t below(uint64_t bound) {
    state_ += 0x9e3779b97f4a7c15ull;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((Wide{z ^ (z >> 31)} * bound) >> 64);
  }
  template <class List>
  const auto& pick(const List& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t state_;
};

/// Invented names with a common ending, divided among the splits.
class NamePool {
 public:
  NamePool(const std::string& ending, uint64_t key) {
    std::vector<std::string> all;
    for (const char* first : kSyllables) {
      for (const char* second : kSyllables) {
        if (first == second) continue;
        std::string name = std::string(first) + second + ending;
        name[0] = static_cast<char>(name[0] - 'a' + 'A');
        all.push_back(std::move(name));
      }
    }
    const auto order = keyed_permutation(static_cast<int64_t>(all.size()), key);
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t part = i < kHeldOutNames ? 1 : i < 2 * kHeldOutNames ? 2 : 0;
      parts_[part].push_back(all[static_cast<size_t>(order[i])]);
    }
  }
  const std::vector<std::string>& of(Split split) const { return parts_[static_cast<size_t>(split)]; }

 private:
  std::array<std::vector<std::string>, kSplits> parts_;
};

/// The pools of names. Their keys are constants, so every corpus divides the names in the same way.
struct World {
  NamePool first_names{"n", 1}, last_names{"rd", 2}, towns{"ville", 3};
};

/// A two-digit figure: for validation a multiple of 7, for test a multiple of 7 plus 1, for train neither.
uint64_t figure(Split split, Random& random) {
  const uint64_t seven = 7 * (2 + random.below(11));
  if (split == Split::kValidation) return seven;
  return split == Split::kTest ? seven + 1 : seven + 2 + random.below(5);
}

/// A sentence: person, verb, object, town, day.
std::string event(const World& world, Split split, Random& random) {
  const std::string& first = random.pick(world.first_names.of(split));
  const std::string& last = random.pick(world.last_names.of(split));
  const char* verb = random.pick(kVerbs);
  const char* object = random.pick(kObjects);
  const std::string& town = random.pick(world.towns.of(split));
  return fmt::format("{} {} {} the {} in {} on {}.", first, last, verb, object, town, random.pick(kDays));
}

/// One of kClaimed, with a figure for {}: "Last year 23 papers wrote that".
std::string claim(Split split, Random& random) {
  std::string text = random.pick(kClaimed);
  const size_t at = text.find("{}");
  if (at != std::string::npos) text.replace(at, 2, std::to_string(figure(split, random)));
  return text;
}

}  // namespace

void read_synthetic(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink) {
  const World world;
  // Validation and test each get 1 %, at least 1 and at most 500. With fewer than 3 examples, all are train.
  const int64_t held_out = source.examples < 3 ? 0 : std::clamp<int64_t>(source.examples / 100, 1, 500);
  progress = {0, source.examples};
  for (int64_t i = 0; i < source.examples; ++i) {
    CorpusExample example;
    const int64_t from_end = source.examples - 1 - i;
    example.split = from_end < held_out       ? Split::kTest
                    : from_end < 2 * held_out ? Split::kValidation
                                              : Split::kTrain;
    example.id = fmt::format("synthetic-{}", i);
    // Each article has a seed of its own: its text depends on the number of articles only through its split.
    Random random(Random(source.seed).below(UINT64_MAX) ^ (static_cast<uint64_t>(i) * 0xd1342543de82ef95ull));
    const int64_t confirmed = 1 + static_cast<int64_t>(random.below(kSentences - 1));
    for (int64_t s = 0; s < kSentences; ++s) {
      const std::string what = event(world, example.split, random);
      const std::string intro = s == confirmed ? random.pick(kConfirmed) : claim(example.split, random);
      example.document += fmt::format("{}{} {}", s == 0 ? "" : " ", intro, what);
      if (s == confirmed) example.summary = what;
    }
    progress.done = i + 1;
    sink(example);
  }
}

}  // namespace ripstop
