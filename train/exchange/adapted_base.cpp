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
    StoredModel model = open_stored_model(io, find_stored_model(io, path, "best"));
    if (model.weights_hash() == base.hash) return model;
    add("has other weights");
  } catch (const Error& error) {
    add(error.what());
  }
  return std::nullopt;
}

}  // namespace

StoredModel find_base(Io& io, const AdaptedBase& base, const std::vector<fs::path>& elsewhere) {
  std::vector<fs::path> places{base.directory};
  for (const fs::path& path : elsewhere)
    if (std::find(places.begin(), places.end(), path) == places.end()) places.push_back(path);
  std::string found;
  for (const fs::path& path : places)
    if (std::optional<StoredModel> model = base_at(io, base, path, found)) return *std::move(model);
  throw Error(ExitCode::kInputData,
              fmt::format("the model that the adapters were trained with is not there: {}", found),
              "put it back to where it was: adapters mean nothing beside other weights");
}

}  // namespace ripstop
