// Sources: tensorboard 2.21, compat/proto/*.proto and plugins/hparams/*.proto, for the numbers of fields;
// https://protobuf.dev/programming-guides/encoding/; RFC 3720, appendix B.4, for CRC-32C.
#include "train/report/event_file.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "data/files/directory.h"
#include "data/files/file.h"
#include "data/process/process_identity.h"
#include "data/tokenizer/protobuf_fields.h"
#include "model/core/number.h"
#include "train/config/config_keys.h"
#include "train/machine/machine.h"
#include "train/report/human_text.h"

namespace ripstop {

namespace {

// A protobuf message. The first argument of each call is the number of a field.
class Message {
 public:
  Message& integer(uint32_t field, uint64_t value) { return varint(field << 3).varint(value); }
  Message& number(uint32_t field, double value) { return varint(field << 3 | 1).raw(value); }
  Message& number(uint32_t field, float value) { return varint(field << 3 | 5).raw(value); }
  Message& text(uint32_t field, std::string_view value) {
    varint(field << 3 | 2).varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(uint32_t field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  Message& varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
    return *this;
  }
  Message& raw(auto value) {
    static_assert(std::endian::native == std::endian::little);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  std::string bytes_;
};

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr size_t kDigits = 10;               // digits of a name's number, so that names sort like numbers
constexpr uint64_t kFloat = 1, kString = 7;  // numbers of TensorFlow's DataType

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82f63b78u : 0);
  }
  return table;
}

// The checksum of a record: CRC-32C, rotated, plus a constant, because records may hold checksums themselves.
uint32_t checksum(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string record(const Message& event) {
  const uint64_t size = event.bytes().size();
  const uint32_t of_size = checksum(bytes_of(size)), of_event = checksum(event.bytes());
  std::string record(bytes_of(size));
  record.append(bytes_of(of_size)).append(event.bytes()).append(bytes_of(of_event));
  return record;
}

template <class T>
T value_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The latest time in the last records of a file; 0 without records, or if the file cannot be read. Does not
// read a long file whole: finds records by their checksums.
double last_time(const std::filesystem::path& path) {
  constexpr int64_t kTailBytes = 1 << 16;
  constexpr size_t kHeadBytes = 12, kSumBytes = 4;
  double last = 0;
  try {
    const InputFile file(path, ExitCode::kStorage);
    std::string tail(static_cast<size_t>(std::min(file.bytes(), kTailBytes)), '\0');
    file.read_at(file.bytes() - std::ssize(tail), tail.data(), std::ssize(tail));
    for (size_t at = 0; at + kHeadBytes <= tail.size();) {
      const std::string_view rest = std::string_view(tail).substr(at);
      if (value_at<uint32_t>(rest, 8) != checksum(rest.substr(0, 8))) {
        ++at;
        continue;
      }
      const uint64_t size = value_at<uint64_t>(rest, 0);
      if (size > rest.size() - kHeadBytes) break;  // a torn record
      ProtobufFields fields(rest.substr(kHeadBytes, size));
      if (fields.next() && fields.number == 1 && fields.value.size() == sizeof(double))
        last = std::max(last, value_at<double>(fields.value, 0));
      at += kHeadBytes + size + kSumBytes;
    }
  } catch (const Error&) {
  }
  return last;
}

void add_scalar(Message& values, const std::string& tag, double value) {
  values.message(1, Message().text(1, tag).number(2, static_cast<float>(value)));
}

// Adds a value that a plugin of TensorBoard shows.
void add_tensor(Message& values, std::string_view tag, std::string_view plugin, const Message& content,
                const Message& tensor) {
  constexpr uint64_t kIsTensor = 2;
  const Message metadata =
      Message().message(1, Message().text(1, plugin).message(2, content)).integer(4, kIsTensor);
  values.message(1, Message().text(1, tag).message(8, tensor).message(9, metadata));
}

// Adds data for the plugin hparams, which reads only the metadata.
void add_hparams(Message& values, std::string_view tag, uint32_t field, const Message& data) {
  const Message empty =
      Message().integer(1, kFloat).message(2, Message().message(2, Message().integer(1, 0)));
  add_tensor(values, tag, "hparams", Message().message(field, data), empty);
}

// A google.protobuf.Value for a TOML value.
Message config_value(const std::string& toml) {
  double number = 0;
  const auto [end, error] = std::from_chars(toml.data(), toml.data() + toml.size(), number);
  if (error == std::errc() && end == toml.data() + toml.size()) return Message().number(2, number);
  if (toml == "true" || toml == "false") return Message().integer(4, toml == "true" ? 1 : 0);
  return Message().text(3, toml.starts_with('"') ? toml.substr(1, toml.size() - 2) : toml);
}

// Adds the samples as one text in Markdown, because readers refuse a tensor of several texts.
void add_samples(Message& values, const std::vector<ValidationEvent::Sample>& samples) {
  std::string all;
  for (const auto& [id, text, reference] : samples)
    all += fmt::format("**{}**\n\nsummary: {}\n\nreference: {}\n\n", id, text, reference);
  add_tensor(values, "validation/samples", "text", Message(),
             Message().integer(1, kString).message(2, Message()).text(8, all));
}

// The records for an event; empty for events that TensorBoard does not show.
struct Records {
  const RunConfig& config;
  const std::vector<std::string>& sets;
  double time;

  std::string operator()(const StartEvent& start) const {
    constexpr uint64_t kStart = 1;
    const std::string version = record(Message().number(1, time).text(3, "brain.Event:2"));
    // Makes TensorBoard drop the steps after start.step that it has read: the run makes them again.
    const std::string session = record(at(start.step + 1).message(7, Message().integer(1, kStart)));
    Message info;
    for (const ConfigKey& key : config_keys())
      if (const std::string value = written_value(key, config); !value.empty())
        info.message(1, Message().text(1, key.path()).message(2, config_value(value)));
    // Writes no _hparams_/experiment, because TensorBoard would use the record of one run for all runs, and
    // not see which keys differ. Without this record all scalars are metrics.
    Message values;
    add_hparams(values, "_hparams_/session_start_info", 3, info.number(5, time));
    return version + session + summary(start.step, values);
  }

  std::string operator()(const StepMetrics& step) const {
    Message values;
    add_scalar(values, "train/loss", step.loss);
    add_scalar(values, "train/grad_norm", step.grad_norm);
    add_scalar(values, "train/learning_rate", step.learning_rate);
    add_scalar(values, "train/tokens_seen", static_cast<double>(step.tokens_seen));
    add_scalar(values, "speed/step_seconds", step.step_seconds);
    add_scalar(values, "speed/tokens_per_second", step.tokens_per_second);
    if (step.model_flops_utilization)
      add_scalar(values, "speed/model_flops_utilization", *step.model_flops_utilization);
    for (const MeshAxis axis : kMeshAxes)
      add_scalar(values, std::string("speed/communication_exposed_seconds/") + to_string(axis),
                 step.communication_exposed_seconds[axis]);
    add_scalar(values, "speed/data_wait_seconds", step.data_wait_seconds);
    add_scalar(values, "speed/save_wait_seconds", step.save_wait_seconds);
    add_scalar(values, "memory/peak_bytes", static_cast<double>(step.peak_memory_bytes));
    for_each_set(step.sets, [&](const std::string& set, const SetStep& part) {
      if (part.tokens > 0) add_scalar(values, "train/loss/" + set, part.loss);
    });
    return summary(step.step, values);
  }

  std::string operator()(const ValidationEvent& validation) const {
    Message values;
    add_scalar(values, "validation/loss", validation.loss);
    add_scalar(values, "validation/perplexity", std::exp(validation.loss));
    const auto add_rouge = [&](const auto& scores, const std::string& set) {
      if (scores.rouge1) add_scalar(values, "validation/rouge1" + set, *scores.rouge1);
      if (scores.rouge2) add_scalar(values, "validation/rouge2" + set, *scores.rouge2);
      if (scores.rougeL) add_scalar(values, "validation/rougeL" + set, *scores.rougeL);
    };
    add_rouge(validation, "");
    for_each_set(validation.sets, [&](const std::string& set, const SetScores& part) {
      if (part.target_count > 0) add_scalar(values, "validation/loss/" + set, part.loss);
      add_rouge(part, "/" + set);
    });
    if (validation.samples) add_samples(values, *validation.samples);
    return summary(validation.step, values);
  }

  // TensorBoard keeps the first end that it reads, so only a finished run writes its end.
  std::string operator()(const EndEvent& end) const {
    constexpr uint64_t kSuccess = 1;
    if (end.exit_code != 0) return "";
    Message values;
    add_hparams(values, "_hparams_/session_end_info", 4, Message().integer(1, kSuccess).number(2, time));
    return summary(end.step, values);
  }

  std::string operator()(const auto&) const { return ""; }

 private:
  // Calls take(name, part) for each data set's name and part of the event.
  void for_each_set(const auto& parts, const auto& take) const {
    for (size_t set = 0; parts && set < std::min(parts->size(), sets.size()); ++set)
      take(sets[set], (*parts)[set]);
  }
  Message at(int64_t step) const { return Message().number(1, time).integer(2, static_cast<uint64_t>(step)); }
  std::string summary(int64_t step, const Message& values) const {
    return record(at(step).message(5, values));
  }
};

}  // namespace

EventFile::EventFile(const std::filesystem::path& directory, const RunConfig& config)
    : config_(config), sets_(short_paths(config.data.all())) {
  const double now = clock_seconds(CLOCK_REALTIME);
  int64_t number = static_cast<int64_t>(now);
  for (const Io::Entry& entry : list_directory(posix_io(), directory)) {
    if (!entry.name.starts_with(kPrefix)) continue;
    const auto there = parse_whole_number(entry.name.substr(kPrefix.size(), kDigits));
    number = std::max(number, there.value_or(0) + 1);
    last_time_ = std::max(last_time_, last_time(directory / entry.name));
  }
  shift_ = std::max(0.0, last_time_ - now);
  path_ = directory /
          fmt::format("{}{:0{}}.{}.{}.0", kPrefix, number, kDigits, this_process()["host"], ::getpid());
}

std::string EventFile::records(const MetricsEvent& event, double time) {
  last_time_ = std::max(last_time_, time + shift_);
  return std::visit(Records{config_, sets_, last_time_}, event);
}

}  // namespace ripstop
