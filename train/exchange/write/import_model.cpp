#include "train/exchange/write/import_model.h"

#include <atomic>
#include <memory>
#include <vector>

#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "data/process/partial_directory.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/config/run_config.h"
#include "train/exchange/write/disk_room.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostTokenizerBytes = int64_t{64} << 20;
// Headers, sidecars and the manifest.
constexpr int64_t kRoomBesideWeights = int64_t{64} << 20;

void copy_tokenizer(Io& io, const fs::path& from, const fs::path& to) {
  if (!path_exists(io, from / "tokenizer.model")) return;
  create_file(io, to / "tokenizer.model",
              read_whole_file(from / "tokenizer.model", kMostTokenizerBytes, ExitCode::kInputData));
}

// The state of a model that ripstop has not trained.
CheckpointState imported_state(const StoredModel& model, const fs::path& output) {
  CheckpointState state = model.state();
  RunConfig config = parse_run_config(state.config, model.directory().string());
  config.run.directory = output.string();
  config.data.directory = output.string();  // there is none; messages name what people know
  state.config = to_toml(config);
  return state;
}

}  // namespace

int64_t import_model(Io& io, const StoredModel& model, const fs::path& output,
                     const std::function<void(const std::string&)>& note,
                     const std::function<void(int64_t elements)>& progress) {
  const std::vector<UnitSpec> table = parameter_table(model.config());
  std::vector<UnitLayout> layouts;
  layouts.reserve(table.size());  // the sources refer to its elements
  std::vector<ArraySource> sources;
  std::atomic<int64_t> done = 0;  // threads count
  for (const UnitSpec& unit : table) {
    const UnitLayout& layout = layouts.emplace_back(unit, 1, 0, 1);
    sources.push_back([&](int64_t first, int64_t count, void* to) {
      model.read_elements(layout, first, first + count, static_cast<float*>(to));
      done += count;
    });
    sources.resize(sources.size() + 2);  // moments of zero
  }
  PartialDirectory partial(io, output, note);
  // The moments are holes, so only the weights need room.
  require_room(
      io, partial.folder(),
      checkpoint_elements(table, {1, 1, 1}) * element_bytes(DType::kFloat32) + kRoomBesideWeights,
      "the weights in float32 need",
      "free some space, or give model.pretrained the model's own directory: training needs no import");
  const std::unique_ptr<Communicator> self = make_self_communicator("import");
  CheckpointWriter writer(io, partial / "checkpoints", *self, {1, 1, 1}, table, DType::kFloat32,
                          std::move(sources));
  const SaveReport report = writer.save(imported_state(model, output), {.watch = [&] {
                                          if (progress) progress(done);
                                        }});
  copy_tokenizer(io, model.directory(), partial.path());
  sync_directory(io, partial.path());
  partial.rename_to_output();
  return report.bytes;
}

}  // namespace ripstop
