// Measures saves: the time of a step with a save every few steps beside that without, on a disk that is
// throttled so that one save takes about as many steps as asked for; and the rates of a save that training
// waits for and of loading it, beside dd, on the disk as it is.
//   slurm/launch.sh 1 build/cpu-release/tests/bench/save_bench --model 15m --directory /scratch
// The model is a preset with untied embeddings, trained on random tokens. Rounds with and without saves come
// in turns. Prints one JSON object.
#include <fcntl.h>
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "data/files/directory.h"
#include "tests/bench/rank_bench.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/machine/device_choice.h"
#include "train/plan/resolved_run.h"

namespace ripstop {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// A disk that takes `bytes_per_second` of a rank; 0: as much as it can.
class ThrottledIo : public Io {
 public:
  std::atomic<double> bytes_per_second = 0;

  ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) override {
    const double rate = bytes_per_second;
    if (rate > 0) {
      const auto takes = std::chrono::duration<double>(static_cast<double>(count) / rate);
      std::unique_lock lock(mutex_);
      free_ = std::max(free_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
      const Clock::time_point until = free_;
      lock.unlock();
      std::this_thread::sleep_until(until);
    }
    return Io::pwrite(file, bytes, count, offset);
  }

 private:
  std::mutex mutex_;
  Clock::time_point free_;  ///< when the disk has taken what it was given
};

struct Options {
  RunConfig config;
  std::string model = "15m", directory = ".";
  int64_t steps = 40, rounds = 3, every = 10, copies_mib = -1;
  double save_steps = 8;
};

Options parse(int argc, char** argv) {
  Options o;
  RunConfig& c = o.config;
  c.data.sequence_length = 256;
  c.train.global_batch_sequences = 8;
  c.optimizer.learning_rate = 1e-4;
  CLI::App app("time of steps beside saves, and rates of saves");
  app.add_option("--model", o.model, "preset of the model");
  app.add_option("--directory", o.directory, "on the disk under test");
  app.add_option("--positions", c.data.sequence_length)->check(CLI::PositiveNumber);
  app.add_option("--sequences", c.train.global_batch_sequences, "of a step, over all ranks")
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps, "of a round")->check(CLI::PositiveNumber);
  app.add_option("--rounds", o.rounds)->check(CLI::PositiveNumber);
  app.add_option("--every", o.every, "steps between saves")->check(CLI::PositiveNumber);
  app.add_option("--save-steps", o.save_steps,
                 "steps that one save takes on the throttled disk; 0: no throttle");
  app.add_option("--copies-mib", o.copies_mib, "host memory for copies, of a rank; default: enough for all");
  app.add_option("--tensor", c.mesh.tensor);
  parse_or_exit(app, argc, argv);
  set_model_of_preset(c, o.model);
  c.precision.compute = FloatChoice::kFloat32;
  return o;
}

/// A rank that trains on random tokens and saves.
class Bench {
 public:
  Bench(MpiWorld& world, const Options& options)
      : options_(options),
        device_(choose_device(DeviceChoice::kAuto, world)),
        run_(resolve_run(options.config, run_target(world, device_, /*dataset_vocabulary=*/0))),
        mesh_(world, run_.mesh, /*allow_tensor_across_nodes=*/false, device_),
        stream_(device_),
        step_(run_.model, run_.step, mesh_, stream_, ledger_,
              plan_rank(run_.request(device_.kind), mesh_.coordinates()).arena),
        snapshot_(stream_, ledger_, live_states(step_.model(), step_.optimizer()), mesh_.sizes(),
                  mesh_.position(), options.copies_mib < 0 ? INT64_MAX : options.copies_mib << 20),
        directory_(fs::path(options.directory) / "save_bench"),
        writer_(io_, directory_, mesh_.world(), mesh_.sizes(), run_.trained_table(), snapshot_) {
    step_.model().initialize(1);
    state_.model = run_.model;
    std::mt19937 generator(static_cast<uint32_t>(17 + mesh_.data_rank()));
    const int64_t positions = run_.step.sharding.sequence_length,
                  rows = run_.step.sharding.sequence_count * positions;
    std::uniform_int_distribution<int32_t> uniform(0, static_cast<int32_t>(run_.model.vocab_size - 1));
    offset_.push_back(0);
    for (int64_t row = 0; row < rows; ++row) {
      token_.push_back(uniform(generator));
      target_.push_back(uniform(generator));
      position_.push_back(static_cast<int32_t>(row % positions));
      if ((row + 1) % positions == 0) offset_.push_back(static_cast<int32_t>(row + 1));
    }
  }
  ~Bench() {
    if (mesh_.world().rank() == 0) remove_tree(io_, directory_);
  }

  /// Mean seconds of a step, commits and waits counted.
  double round(int64_t steps, bool saves) {
    const Clock::time_point begin = Clock::now();
    for (int64_t s = 1; s <= steps; ++s) {
      if (take_step() == 0 && writer_.has_begun()) commit();
      if (saves && s % options_.every == 0 && s < steps) {
        if (writer_.has_begun()) commit();
        begin_save(/*in_background=*/true);
      }
    }
    if (writer_.has_begun()) commit();
    return seconds_since(begin) / static_cast<double>(steps);
  }

  /// Seconds of a save that training waits for.
  double save() {
    begin_save(/*in_background=*/false);
    commit();
    return save_seconds_.back();
  }
  /// Seconds of reading what save() wrote, from the disk.
  double load() {
    const fs::path directory = directory_ / step_directory_name(state_.step);
    const Checkpoint checkpoint{directory, read_manifest(io_, directory)};
    for (const StoredFile& file : checkpoint.manifest.files)
      InputFile(io_, directory / rank_file_name(file.rank)).forget();
    mesh_.world().barrier();
    const Clock::time_point begin = Clock::now();
    CheckpointReader reader(io_, checkpoint);
    load_states(live_states(step_.model(), step_.optimizer()), stream_,
                [&](const std::vector<UnitStates>& units) { reader.read(mesh_.coordinates().fsdp, units); });
    stream_.synchronize();
    mesh_.world().barrier();
    return seconds_since(begin);
  }
  /// Seconds of dd for as many bytes, on one rank: writing with a sync, reading from the disk.
  std::pair<double, double> dd() {
    std::pair<double, double> seconds;
    if (mesh_.world().rank() == 0) {
      const fs::path file = directory_ / "dd";
      Clock::time_point begin = Clock::now();
      shell(fmt::format("dd if=/dev/zero of='{}' bs=1M count={} conv=fsync 2>/dev/null", file.string(),
                        bytes_ >> 20));
      seconds.first = seconds_since(begin);
      InputFile(io_, file).forget();
      begin = Clock::now();
      shell(fmt::format("dd if='{}' of=/dev/null bs=1M 2>/dev/null", file.string()));
      seconds.second = seconds_since(begin);
    }
    mesh_.world().barrier();
    return seconds;
  }

  void throttle(double seconds_of_a_save) {
    io_.bytes_per_second =
        seconds_of_a_save > 0
            ? static_cast<double>(bytes_) / static_cast<double>(mesh_.world().size()) / seconds_of_a_save
            : 0;
    save_seconds_.clear();
    waited_ = 0;
  }
  double seconds_of_saves() const { return median(save_seconds_); }
  int64_t saves() const { return std::ssize(save_seconds_); }
  double waited() const { return waited_; }
  int64_t bytes() const { return bytes_; }
  const ResolvedRun& run() const { return run_; }

 private:
  static void shell(const std::string& command) {
    if (std::system(command.c_str()) != 0) throw Error(ExitCode::kStorage, command + " has failed");
  }
  /// Ranks that still write.
  int64_t take_step() {
    const HostTokens tokens{token_, position_, target_, offset_};
    const StepResult result = step_.run(
        run_.micro_batches, [&](int64_t) { return tokens; }, options_.config.optimizer.learning_rate,
        {++updates_}, [] { return false; },
        {.save_work = [&] { return writer_.is_writing() ? SaveWork::kWrites : SaveWork::kNone; },
         .before_update =
             [&](size_t unit) {
               const Clock::time_point begin = Clock::now();
               snapshot_.wait_for(unit);
               waited_ += seconds_since(begin);
             }});
    return result.sum.saving_ranks;
  }
  void begin_save(bool in_background) {
    state_.step += 1;
    begin_ = Clock::now();
    writer_.begin(state_, {.keep = 1, .in_background = in_background});
    waited_ += seconds_since(begin_);
  }
  void commit() {
    const Clock::time_point begin = Clock::now();
    bytes_ = writer_.commit().bytes;
    waited_ += seconds_since(begin);
    save_seconds_.push_back(seconds_since(begin_));
  }

  const Options& options_;
  Device device_;
  ResolvedRun run_;
  DeviceMesh mesh_;
  Stream stream_;
  MemoryLedger ledger_;
  TrainingStep step_;
  Snapshot snapshot_;
  ThrottledIo io_;
  const fs::path directory_;
  CheckpointWriter writer_;
  CheckpointState state_;
  std::vector<int32_t> token_, position_, target_, offset_;
  int64_t updates_ = 0, bytes_ = 0;
  Clock::time_point begin_;
  std::vector<double> save_seconds_;
  double waited_ = 0;
};

ExitCode bench(MpiWorld& world, const Options& options) {
  Bench bench(world, options);
  std::vector<double> save, load, dd_write, dd_read, without, with;
  bench.round(2, false);
  for (int64_t round = 0; round < options.rounds; ++round) {
    save.push_back(bench.save());
    load.push_back(bench.load());
    const auto [written, read] = bench.dd();
    dd_write.push_back(written);
    dd_read.push_back(read);
  }
  bench.throttle(options.save_steps * bench.round(options.every, false));
  for (int64_t round = 0; round < options.rounds; ++round) {
    without.push_back(bench.round(options.steps, false));
    with.push_back(bench.round(options.steps, true));
  }
  if (world.communicator().rank() != 0) return ExitCode::kOk;
  const auto rate = [&](const std::vector<double>& seconds) {
    return static_cast<double>(bench.bytes()) / median(seconds) * 1e-6;
  };
  const auto per_save = static_cast<double>(std::max<int64_t>(bench.saves(), 1));
  const nlohmann::ordered_json report{{"model", options.model},
                                      {"mesh", bench.run().mesh.to_text()},
                                      {"checkpoint_bytes", bench.bytes()},
                                      {"save_megabytes_per_second", rate(save)},
                                      {"load_megabytes_per_second", rate(load)},
                                      {"dd_write_megabytes_per_second", rate(dd_write)},
                                      {"dd_read_megabytes_per_second", rate(dd_read)},
                                      {"save_by_dd", median(dd_write) / median(save)},
                                      {"load_by_dd", median(dd_read) / median(load)},
                                      {"all_save_seconds", save},
                                      {"all_load_seconds", load},
                                      {"all_dd_write_seconds", dd_write},
                                      {"all_dd_read_seconds", dd_read},
                                      {"step_seconds", median(without)},
                                      {"step_seconds_with_saves", median(with)},
                                      {"slower", median(with) / median(without) - 1},
                                      {"all_step_seconds", without},
                                      {"all_step_seconds_with_saves", with},
                                      {"saves", bench.saves()},
                                      {"save_seconds_throttled", bench.seconds_of_saves()},
                                      {"steps_of_a_save", bench.seconds_of_saves() / median(without)},
                                      {"waited_seconds_a_save", bench.waited() / per_save}};
  fmt::print("{}\n", report.dump(1));
  return ExitCode::kOk;
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  return ripstop::main_of_ranks(argc, argv, ripstop::parse, ripstop::bench);
}
