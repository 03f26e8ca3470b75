#include "train/config/config_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr size_t kLongestStringBytes = 4096;

// Writes one entry's value into its field. Refuses a value of a wrong type or outside its range.
class Assigner {
 public:
  explicit Assigner(const ConfigEntry& entry) : entry_(entry) {}

  void operator()(bool* field) const { *field = value_as<bool>(); }
  void operator()(int64_t* field) const {
    *field = value_as<int64_t>();
    check_range(static_cast<double>(*field));
  }
  void operator()(double* field) const {
    // People write 3 and mean 3.0.
    const auto* integer = std::get_if<int64_t>(&entry_.value);
    *field = integer != nullptr ? static_cast<double>(*integer) : value_as<double>();
    check_range(*field);
  }
  void operator()(std::string* field) const {
    const std::string& value = value_as<std::string>();
    if (value.size() > kLongestStringBytes)
      refuse(fmt::format("'{}' is longer than {} bytes", path(), kLongestStringBytes));
    // Paths appear in messages and logs of one line, and NUL would cut a path.
    for (const char c : value)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        refuse(fmt::format("'{}' holds a control character", path()));
    *field = value;
  }
  void operator()(std::array<double, 2>* field) const {
    const std::vector<double>& values = value_as<std::vector<double>>();
    if (values.size() != field->size()) refuse_type();
    for (const double value : values) check_range(value);
    std::copy(values.begin(), values.end(), field->begin());
  }
  void operator()(ChoiceField field) const {
    // Some words are true and false, which people write without quotes.
    const bool* flag = std::get_if<bool>(&entry_.value);
    const std::string given = flag == nullptr ? value_as<std::string>() : *flag ? "true" : "false";
    const auto word = std::find(field.words.begin(), field.words.end(), given);
    if (word == field.words.end()) refuse_type();
    field.set(field.value, static_cast<int>(word - field.words.begin()));
  }
  void operator()(WordsField field) const {
    const std::vector<std::string>& given = value_as<std::vector<std::string>>();
    std::fill(field.has.begin(), field.has.end(), false);
    for (const std::string& word : given) {
      const auto found = std::find(field.words.begin(), field.words.end(), word);
      if (found == field.words.end()) refuse_word(field, word);
      bool& has = field.has[static_cast<size_t>(found - field.words.begin())];
      if (has) refuse(fmt::format("'{}' has \"{}\" twice", path(), word));
      has = true;
    }
  }
  template <class T>
  void operator()(std::optional<T>* field) const {
    if (entry_.key->none_is_auto && entry_.value == ConfigValue("auto")) {
      field->reset();
      return;
    }
    T value{};
    (*this)(&value);
    *field = value;
  }

 private:
  std::string path() const { return entry_.key->path(); }

  [[noreturn]] void refuse(const std::string& what, std::string_view hint = {}) const {
    throw Error(ExitCode::kUsage, entry_.where + ": " + what, std::string(hint));
  }

  // The value in the type that it has in the file. Nothing is converted.
  template <class T>
  const T& value_as() const {
    const T* value = std::get_if<T>(&entry_.value);
    if (value == nullptr) refuse_type();
    return *value;
  }

  void check_range(double value) const {
    const ValueRange& range = entry_.key->range;
    // Written so that NaN, which compares false with everything, is outside of every range.
    const bool low = range.above_least ? !(value > range.least) : !(value >= range.least);
    const bool high = range.below_most ? !(value < range.most) : !(value <= range.most);
    if (std::isfinite(value) && !low && !high) return;
    refuse(
        fmt::format("'{}' must be {} {} and {} {}, got {}", path(), range.above_least ? "above" : "at least",
                    range.least, range.below_most ? "below" : "at most", range.most, entry_.shown),
        entry_.key->range_hint);
  }

  [[noreturn]] void refuse_word(const WordsField& field, const std::string& word) const {
    refuse(fmt::format("'{}' has {}, which is none of \"{}\"", path(), toml_string(word.substr(0, 40)),
                       fmt::join(field.words, "\", \"")),
           suggest_config_value(entry_));
  }

  [[noreturn]] void refuse_type() const {
    throw Error(ExitCode::kUsage,
                fmt::format("{}: '{}' must be {}, got {}", entry_.where, path(), expected_type(*entry_.key),
                            entry_.shown),
                suggest_config_value(entry_));
  }

  const ConfigEntry& entry_;
};

}  // namespace

void assign_value(const ConfigEntry& entry, RunConfig& config) {
  std::visit(Assigner(entry), entry.key->field(config));
}

}  // namespace ripstop
