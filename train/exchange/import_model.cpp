#include "train/exchange/import_model.h"

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "data/directory.h"
#include "data/partial_directory.h"
#include "data/whole_file.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/config/run_config.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostTokenizerBytes = int64_t{64} << 20;
// Headers, sidecars and the manifest.
constexpr int64_t kRoomBesideWeights = int64_t{64} << 20;

// The moments are holes, so only the weights need room.
void check_room(Io& io, const fs::path& directory, int64_t weights_bytes) {
  int64_t room = 0;
  if (io.free_bytes(directory, room) != 0) fail_storage(directory, "get the free space", errno);
  if (room < weights_bytes + kRoomBesideWeights)
    throw Error(
        ExitCode::kStorage,
        fmt::format("{}: {} free, the weights in float32 need {}", directory.string(), bytes_text(room),
                    bytes_text(weights_bytes)),
        "free some space, or give model.pretrained the model's own directory: training needs no import");
}

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
  std::vector<const UnitLayout*> borrowed;
  layouts.reserve(table.size());  // the sources refer to its elements
  std::vector<ArraySource> sources;
  int64_t done = 0;
  const auto counted_source = [&](ArraySource source) -> ArraySource {
    return [&, source = std::move(source)](int64_t first, int64_t count, void* to) {
      source(first, count, to);
      done += count;
      if (progress) progress(done);
    };
  };
  for (const UnitSpec& unit : table) {
    const UnitLayout& layout = layouts.emplace_back(unit, 1, 0, 1);
    borrowed.push_back(&layout);
    sources.push_back(counted_source([&](int64_t first, int64_t count, void* to) {
      model.read_elements(layout, first, first + count, static_cast<float*>(to));
    }));
    sources.push_back(counted_source(array_of_zeros(DType::kFloat32)));
    sources.push_back(counted_source(array_of_zeros(DType::kFloat32)));
  }
  PartialDirectory partial(output, note);
  check_room(io, partial.path(), checkpoint_elements(table, {1, 1, 1}) * element_bytes(DType::kFloat32));
  const std::unique_ptr<Communicator> self = make_self_communicator("import");
  CheckpointWriter writer(io, partial / "checkpoints", *self, borrowed, std::move(sources));
  const SaveReport report = writer.save(imported_state(model, output), {});
  copy_tokenizer(io, model.directory(), partial.path());
  sync_directory(io, partial.path());
  partial.rename_to_output();
  return report.bytes;
}

}  // namespace ripstop
