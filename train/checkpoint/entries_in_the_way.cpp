#include "train/checkpoint/entries_in_the_way.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <vector>

#include "data/files/directory.h"
#include "data/tokenizer/tokenizer.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/takeovers.h"

namespace ripstop {
namespace {

bool is_existing_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

/// Whether nothing but what a run leaves behind, such as the LOCK of a folder that is linked, is there.
bool has_no_foreign_entry(Io& io, const std::filesystem::path& checkpoints) {
  const std::vector<Io::Entry> entries = list_directory(io, checkpoints);
  return std::all_of(entries.begin(), entries.end(), [](const Io::Entry& entry) {
    return entry.name.starts_with("LOCK") || entry.name.starts_with(".") ||
           entry.name == Takeovers::kFileName;
  });
}

bool is_harmless_folder(Io& io, const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name == "logs" || (name.starts_with(".") && name != ".git") ||
         (name == "checkpoints" && has_no_foreign_entry(io, path));
}

bool is_harmless_file(const std::filesystem::path& path) {
  constexpr std::array<std::string_view, 6> kWritten = {"config.toml",  kTokenizerFile, "prompt_template.txt",
                                                        "prepare.json", "LOCK",         Manifest::kFileName};
  constexpr std::array<std::string_view, 3> kExtensions = {".h5", ".jsonl", ".safetensors"};
  const std::string name = path.filename().string(), extension = path.extension().string();
  return std::find(kWritten.begin(), kWritten.end(), name) == kWritten.end() &&
         std::find(kExtensions.begin(), kExtensions.end(), extension) == kExtensions.end();
}

}  // namespace

std::string entries_in_the_way(Io& io, const std::filesystem::path& directory,
                               std::span<const std::string_view> own) {
  constexpr int kShown = 3;
  if (!is_existing_folder(directory)) return "";
  int found = 0;
  std::string names;
  for (const Io::Entry& entry : list_directory(io, directory)) {
    const std::filesystem::path path = directory / entry.name;
    const bool folder = is_existing_folder(path);
    const auto begins = [&](std::string_view name) { return entry.name.starts_with(name); };
    if (folder ? is_harmless_folder(io, path)
               : is_harmless_file(path) || std::any_of(own.begin(), own.end(), begins))
      continue;
    if (++found <= kShown)
      names += fmt::format("{}{}{}", names.empty() ? "" : ", ", entry.name, folder ? "/" : "");
  }
  return found > kShown ? fmt::format("{} and {} more", names, found - kShown) : names;
}

}  // namespace ripstop
