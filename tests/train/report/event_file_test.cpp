// Event files, read by the format alone, as TensorBoard reads them.
#include "train/report/event_file.h"

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "data/files/file.h"
#include "data/tokenizer/protobuf_fields.h"
#include "tests/train/config/small_config.h"
#include "tests/train/run/full_disk.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// CRC-32C bit by bit.
uint32_t checksum(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

template <class T>
T number_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.substr(at, sizeof value).data(), sizeof value);
  return value;
}

/// The fields of a message by their numbers; for integers their digits.
using Fields = std::multimap<uint32_t, std::string>;
Fields fields_of(std::string_view message) {
  Fields all;
  for (ProtobufFields fields(message); fields.next();)
    all.emplace(fields.number,
                fields.value.data() ? std::string(fields.value) : std::to_string(fields.integer));
  return all;
}
/// The only field `number`; "" if there is none.
std::string only(const Fields& fields, uint32_t number) {
  EXPECT_LE(fields.count(number), 1U);
  const auto found = fields.find(number);
  return found == fields.end() ? "" : found->second;
}

/// All that the files of a run hold.
struct Events {
  std::vector<double> times;
  std::vector<std::string> versions;
  std::vector<int64_t> starts;                              ///< steps of SessionLog START
  std::map<std::string, std::map<int64_t, float>> scalars;  ///< by tag and step, without what a start drops
  std::map<std::string, std::vector<Fields>> tensors;       ///< values by tag
  std::set<std::string> tags;

  void add(const fs::path& file) {
    const std::string bytes = read_bytes(file);
    for (size_t at = 0; at + 16 <= bytes.size();) {
      const auto size = number_at<uint64_t>(bytes, at);
      if (size > bytes.size() - at - 16) return;  // torn
      ASSERT_EQ(number_at<uint32_t>(bytes, at + 8), checksum(std::string_view(bytes).substr(at, 8)));
      const std::string_view event = std::string_view(bytes).substr(at + 12, size);
      ASSERT_EQ(number_at<uint32_t>(bytes, at + 12 + size), checksum(event));
      add_event(fields_of(event));
      at += 16 + size;
    }
  }
  void add_event(const Fields& event) {
    times.push_back(number_at<double>(only(event, 1), 0));
    if (event.contains(3)) versions.push_back(only(event, 3));
    const int64_t step = event.contains(2) ? std::stoll(only(event, 2)) : 0;
    if (event.contains(7)) {
      EXPECT_EQ(only(fields_of(only(event, 7)), 1), "1") << "START";
      starts.push_back(step);
      for (auto& [tag, values] : scalars) values.erase(values.lower_bound(step), values.end());
    }
    for (const auto& [number, value] : fields_of(only(event, 5))) {
      const Fields fields = fields_of(value);
      const std::string tag = only(fields, 1);
      tags.insert(tag);
      if (!fields.contains(2))
        tensors[tag].push_back(fields);
      else
        EXPECT_TRUE(scalars[tag].emplace(step, number_at<float>(only(fields, 2), 0)).second)
            << tag << " twice at step " << step;
    }
  }
};

std::vector<fs::path> event_files(const fs::path& run) {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(run))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.insert(entry.path());
  return {files.begin(), files.end()};
}

Events events_of(const fs::path& run) {
  Events events;
  for (const fs::path& file : event_files(run)) events.add(file);
  return events;
}

class EventFiles : public ::testing::Test {
 protected:
  /// Writes a file as a start does whose events have the time `time`.
  fs::path write(const std::vector<MetricsEvent>& all, double time) {
    EventFile file(scratch_.path(), config_);
    std::string bytes;
    for (const MetricsEvent& event : all) bytes += file.records(event, time);
    write_bytes(file.path(), bytes);
    return file.path();
  }
  static double now() { return static_cast<double>(std::time(nullptr)); }
  static int64_t number_in(const fs::path& file) { return std::stoll(file.filename().string().substr(20)); }

  ScratchDirectory scratch_;
  RunConfig config_ = parse_run_config(small_config::kSmallest, "x.toml");
};

StartEvent start_at(int64_t step) {
  StartEvent start;
  start.step = step;
  return start;
}

StepMetrics full_step() {
  StepMetrics step;
  step.step = 3;
  step.loss = std::nan("");
  step.grad_norm = 1.5;
  step.tokens_seen = int64_t{1} << 40;
  step.model_flops_utilization = 0.5;
  step.communication_exposed_seconds.fsdp = 0.25;
  step.peak_memory_bytes = int64_t{61} << 30;
  step.sets = {{.tokens = 5, .loss = 1.25}, {}};
  return step;
}

ValidationEvent full_validation() {
  ValidationEvent validation;
  validation.step = 3;
  validation.loss = 2;
  validation.rouge1 = validation.rouge2 = 0.25;
  validation.rougeL = 0.125;
  validation.samples = {{"7", "a cat | <b>", "the \xc3\xa9"}, {"8", "", "r"}};
  validation.sets = {{.loss = 1.5, .target_count = 9, .rouge1 = 0.25, .rouge2 = 0.25, .rougeL = 0.125}, {}};
  return validation;
}

TEST_F(EventFiles, HoldWhatTheFormatSays) {
  EndEvent end;
  end.step = 3;
  const fs::path file =
      write({start_at(2), full_step(), full_validation(), HostsEvent{}, WarningEvent{}, end}, 5e9);
  const Events events = events_of(scratch_.path());
  EXPECT_EQ(events.versions, std::vector<std::string>{"brain.Event:2"});
  EXPECT_EQ(events.starts, std::vector<int64_t>{3}) << "step 2 is done, step 3 is made again";
  EXPECT_EQ(events.times, std::vector<double>(6, 5e9));
  EXPECT_TRUE(std::isnan(events.scalars.at("train/loss").at(3)));
  EXPECT_EQ(events.scalars.at("train/tokens_seen").at(3), 1099511627776.0F);
  EXPECT_EQ(events.scalars.at("speed/communication_exposed_seconds/fsdp").at(3), 0.25F);
  EXPECT_EQ(events.scalars.at("validation/perplexity").at(3), static_cast<float>(std::exp(2.0)));
  EXPECT_EQ(events.scalars.at("validation/rougeL").at(3), 0.125F);
  EXPECT_FALSE(events.tags.contains("train/loss/SET")) << "the run has one data set";

  const Fields text = events.tensors.at("validation/samples").at(0);
  const Fields metadata = fields_of(only(text, 9));
  EXPECT_EQ(only(fields_of(only(metadata, 1)), 1), "text");
  EXPECT_EQ(only(metadata, 4), "2") << "a tensor";
  const Fields tensor = fields_of(only(text, 8));
  EXPECT_EQ(only(tensor, 1), "7") << "strings";
  EXPECT_EQ(only(tensor, 2), "") << "no dimension";
  EXPECT_EQ(
      only(tensor, 8),
      "**7**\n\nsummary: a cat | <b>\n\nreference: the \xc3\xa9\n\n**8**\n\nsummary: \n\nreference: r\n\n");

  const auto hparams = [&](const char* tag, uint32_t field) {
    const Fields value = events.tensors.at(tag).at(0);
    const Fields plugin = fields_of(only(fields_of(only(value, 9)), 1));
    EXPECT_EQ(only(plugin, 1), "hparams");
    return fields_of(only(fields_of(only(plugin, 2)), field));
  };
  std::map<std::string, Fields> settings;
  const Fields begin = hparams("_hparams_/session_start_info", 3);
  EXPECT_EQ(number_at<double>(only(begin, 5), 0), 5e9);
  for (auto [entry, last] = begin.equal_range(1); entry != last; ++entry) {
    const Fields pair = fields_of(entry->second);
    settings[only(pair, 1)] = fields_of(only(pair, 2));
  }
  EXPECT_EQ(number_at<double>(only(settings.at("train.steps"), 2), 0), 100);
  EXPECT_EQ(only(settings.at("run.device"), 3), "auto");
  EXPECT_EQ(only(settings.at("data.shuffle"), 4), "1");
  EXPECT_EQ(only(settings.at("optimizer.betas"), 3), "[0.9, 0.95]");
  const Fields done = hparams("_hparams_/session_end_info", 4);
  EXPECT_EQ(only(done, 1), "1") << "SUCCESS";

  EXPECT_EQ(file.filename().string().substr(0, 20), "events.out.tfevents.");
  EXPECT_NEAR(static_cast<double>(number_in(file)), now(), 60);
}

TEST_F(EventFiles, TheTagsAreThoseOfThePage) {
  config_.data.directories = {"sets/SET", "sets/without-numbers"};
  write({start_at(0), full_step(), full_validation(), EndEvent{}}, now());
  const std::string page = read_bytes(RIPSTOP_SOURCE_DIR "/docs/formats.md");
  const size_t begin = page.find("<!-- table: tags -->");
  ASSERT_NE(begin, page.npos);
  std::set<std::string> listed;
  const std::string table = page.substr(begin, page.find("<!-- /table -->", begin) - begin);
  for (size_t at = table.find("\n| `"); at != table.npos; at = table.find("\n| `", at + 1))
    listed.insert(table.substr(at + 4, table.find('`', at + 4) - at - 4));
  EXPECT_EQ(listed, events_of(scratch_.path()).tags);
}

TEST_F(EventFiles, EachSetHasScalars) {
  config_.data.directories = {"/sets/news/made", "/sets/chats/made"};
  write({start_at(0), full_step(), full_validation()}, now());
  const Events events = events_of(scratch_.path());
  EXPECT_EQ(events.scalars.at("train/loss/news/made").at(3), 1.25F);
  EXPECT_EQ(events.scalars.at("validation/loss/news/made").at(3), 1.5F);
  EXPECT_EQ(events.scalars.at("validation/rougeL/news/made").at(3), 0.125F);
  for (const std::string& tag : events.tags) EXPECT_EQ(tag.find("chats"), tag.npos) << "no targets: " << tag;
}

// A run that stopped or failed may go on, and TensorBoard would not believe a second end.
TEST_F(EventFiles, OnlyADoneRunHasAnEnd) {
  EndEvent stopped;
  stopped.exit_code = 75;
  write({start_at(0), stopped}, now());
  EXPECT_FALSE(events_of(scratch_.path()).tags.contains("_hparams_/session_end_info"));
}

TEST_F(EventFiles, ANewFileIsTheLastAndNoTimeGoesBack) {
  const double ahead = now() + 3600;
  const std::string far = "events.out.tfevents." + std::to_string(static_cast<int64_t>(ahead)) + ".n1.1.0";
  const fs::path first = write({start_at(0), full_step()}, ahead);
  // The older file has another name, and ends within a record, behind a megabyte of others.
  std::string bytes = read_bytes(first);
  while (bytes.size() < 1 << 20) bytes.insert(0, read_bytes(first));
  write_bytes(scratch_ / far, bytes + bytes.substr(0, 30));
  fs::remove(first);
  // Files that no start wrote: no number, no file, no records.
  write_bytes(scratch_ / "events.out.tfevents.v2", "abc");
  fs::create_directory(scratch_ / "events.out.tfevents.0000000009.d");
  write_bytes(scratch_ / "events.out.tfevents.0000000008.n1", std::string(5000, '\xff'));

  const fs::path second = write({start_at(3), full_step()}, now());
  EXPECT_EQ(number_in(second), static_cast<int64_t>(ahead) + 1);
  Events events;
  events.add(second);
  EXPECT_GE(events.times.front(), ahead);
  EXPECT_LT(events.times.front(), ahead + 60) << "the clock goes on from there";
  EventFile third(scratch_.path(), config_);
  EXPECT_EQ(number_in(third.path()), number_in(second) + 1);
  const std::string later = third.records(start_at(0), now() + 10),
                    earlier = third.records(start_at(0), now() - 99);
  EXPECT_EQ(later, earlier) << "a clock that is set back stands still";
}

// An owner that was taken over writes no records, nor does one on a full disk.
TEST_F(EventFiles, RecordsFollowTheirLinesUnderTheSameRights) {
  bool may_write = true;
  const LogRights rights{.may_write = [&] { return may_write; }, .check_owner = {}, .patience_seconds = 1};
  const fs::path lines = scratch_ / "metrics.jsonl", records = scratch_ / "records";
  LogWriter log(lines, rights, records);
  log.add("a\n", "1");
  log.add("b\n");
  log.sync();
  EXPECT_EQ(read_bytes(records), "1");
  may_write = false;
  log.add("c\n", "3");
  EXPECT_THROW(log.sync(), Error);
  EXPECT_EQ(read_bytes(records), "1");
  may_write = true;
  while (log.waiting_lines() > 0) usleep(1000);
  EXPECT_EQ(read_bytes(records), "13");
  {
    const FullDisk full(100);
    log.add("d\n", std::string(200, 'x'));
    EXPECT_THROW(log.sync(), Error);
    EXPECT_EQ(read_bytes(records), "13") << "no part of a record";
  }
  log.sync();
  EXPECT_EQ(read_bytes(records), "13" + std::string(200, 'x'));
  EXPECT_EQ(read_bytes(lines), "a\nb\nc\nd\n") << "no line twice";
}

class RunsWithEvents : public SmallRuns {};

// Steps that are made again count once: those of the checkpoint behind which the run went on.
TEST_F(RunsWithEvents, ScalarsAreThoseOfMetrics) {
  const std::string data = make_data("data", 4);
  const RunConfig ten =
      config("run", data,
             {"train.steps=10", "checkpoint.every_steps=4", "checkpoint.keep=0", "log.tensorboard=true"});
  ASSERT_EQ(train(ten), ExitCode::kOk);
  fs::remove_all(checkpoint("run", 8));
  fs::remove_all(checkpoint("run", 10));
  // Half of a record, as a killed run leaves it.
  const fs::path first = event_files(scratch_ / "run").at(0);
  fs::resize_file(first, fs::file_size(first) - 5);
  ASSERT_EQ(train(ten), ExitCode::kOk);

  const std::vector<fs::path> files = event_files(scratch_ / "run");
  ASSERT_EQ(files.size(), 2U);
  const Events events = events_of(scratch_ / "run");
  EXPECT_EQ(events.starts, (std::vector<int64_t>{1, 5}));
  EXPECT_TRUE(std::is_sorted(events.times.begin(), events.times.end()));
  const MetricsLog log = metrics("run");
  const auto expect_equal = [&](const char* tag, double StepMetrics::*member) {
    std::map<int64_t, float> expected;
    for (const StepMetrics& step : log.steps) expected[step.step] = static_cast<float>(step.*member);
    EXPECT_EQ(expected.size(), 10U);
    EXPECT_EQ(events.scalars.at(tag), expected) << tag;
  };
  expect_equal("train/loss", &StepMetrics::loss);
  expect_equal("train/grad_norm", &StepMetrics::grad_norm);
  expect_equal("train/learning_rate", &StepMetrics::learning_rate);
  expect_equal("speed/step_seconds", &StepMetrics::step_seconds);
  expect_equal("speed/tokens_per_second", &StepMetrics::tokens_per_second);
  EXPECT_EQ(events.tensors.at("_hparams_/session_start_info").size(), 2U);
}

// A run writes no event files unless it is told to.
TEST_F(RunsWithEvents, AreAskedFor) {
  ASSERT_EQ(train(config("run", make_data("data", 4))), ExitCode::kOk);
  EXPECT_TRUE(event_files(scratch_ / "run").empty());
}

}  // namespace
}  // namespace ripstop
