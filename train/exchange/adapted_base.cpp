#include "train/exchange/adapted_base.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "data/directory.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// StoredModel::weights_hash of the model in `directory`. Does not open what lies under its adapters, if it
// has any: that may be the very checkpoint whose base is looked for.
std::string hash_at(Io& io, const fs::path& directory) {
  if (is_pretrained_model(directory)) return open_stored_model(io, directory).weights_hash();
  return StoredModel(Checkpoint{directory, read_manifest(io, directory)}).weights_hash();
}

// The model at `path` if it has the hash; else nothing, and what is wrong with it is added to `found`.
std::optional<StoredModel> base_at(Io& io, const AdaptedBase& base, const fs::path& path,
                                   std::string& found) {
  const auto add = [&](const std::string& text) {
    found += fmt::format("{}{}: {}", found.empty() ? "" : "; ", path.string(), text);
  };
  if (!directory_exists(io, path)) {
    add("no such directory");
    return std::nullopt;
  }
  try {
    const fs::path directory = find_stored_model(io, path, "best");
    if (hash_at(io, directory) == base.hash) return open_stored_model(io, directory);
    add("has other weights");
  } catch (const Error& error) {
    add(error.what());
  }
  return std::nullopt;
}

}  // namespace

StoredModel find_base(Io& io, const AdaptedBase& base, const std::vector<fs::path>& places) {
  std::string found;
  for (auto path = places.begin(); path != places.end(); ++path)
    if (std::find(places.begin(), path, *path) == path)
      if (std::optional<StoredModel> model = base_at(io, base, *path, found)) return *std::move(model);
  throw Error(
      ExitCode::kInputData,
      fmt::format("the model that the adapters were trained with is not there: {}", found),
      "put it back to where it was, or name its directory: model.pretrained of train, --base of other "
      "verbs");
}

}  // namespace ripstop
