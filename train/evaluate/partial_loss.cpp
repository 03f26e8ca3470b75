#include "train/evaluate/partial_loss.h"

#include <nlohmann/json.hpp>

#include "data/files/whole_file.h"
#include "data/text/json_reader.h"

namespace ripstop {

LossSoFar read_partial_loss(const std::filesystem::path& directory) {
  constexpr int64_t kMostBytes = 1 << 16;
  const std::filesystem::path path = directory / kPartialLossFile;
  const JsonReader reader(path.string(), ExitCode::kStorage);
  LossSoFar loss;
  try {
    const JsonReader::Json json = reader.parse(read_whole_file(posix_io(), path, kMostBytes));
    loss.sequences = reader.integer(json, "sequences", 0, INT64_MAX);
    loss.complete = reader.flag(json, "complete");
    loss.sum.loss = reader.number(json, "loss_sum");
    loss.sum.target_count = reader.integer(json, "targets", 0, INT64_MAX);
    return loss;
  } catch (const IoError& error) {
    if (!error.is_absence()) throw;
  } catch (const Error&) {
  }
  return {};
}

void write_partial_loss(const std::filesystem::path& directory, const LossSoFar& loss) {
  // JSON has no NaN: such a loss is computed again.
  const JsonReader::Json json = {{"sequences", loss.sequences},
                                 {"complete", loss.complete},
                                 {"loss_sum", loss.sum.loss},
                                 {"targets", loss.sum.target_count}};
  write_whole_file(directory / kPartialLossFile, json.dump(2) + "\n");
}

}  // namespace ripstop
