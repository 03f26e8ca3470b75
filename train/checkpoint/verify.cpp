#include "train/checkpoint/verify.h"

#include <algorithm>
#include <optional>
#include <set>

#include "data/files/directory.h"
#include "model/core/error.h"
#include "model/core/function_ref.h"
#include "train/checkpoint/file_blocks.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/takeovers.h"

namespace ripstop {
namespace {

// A file of another checkpoint differs in every block; a few findings say as much.
constexpr size_t kMostFindingsOfAFile = 100;

using Findings = std::vector<CheckpointDamage>;

/// The text of an error without the path that it begins with: a finding has the file's name already.
std::string without_path(const Error& error, const std::filesystem::path& path) {
  const std::string what = error.what(), prefix = path.string() + ": ";
  return what.starts_with(prefix) ? what.substr(prefix.size()) : what;
}

/// A size that differs is found without reading, and says more than a wrong hash.
bool has_size(Io& io, const std::filesystem::path& path, int64_t bytes, Findings& findings) {
  Io::Status status;
  if (io.status(path, status) != 0) {
    findings.push_back({path.filename().string(), "is missing", 0});
    return false;
  }
  if (!status.is_file || status.bytes != bytes) {
    findings.push_back({path.filename().string(),
                        status.is_file ? fmt::format("has {} bytes, {} expected", status.bytes, bytes)
                                       : std::string("is not a plain file"),
                        std::min(status.bytes, bytes)});
    return false;
  }
  return true;
}

/// Reads every byte of a file. Takes as long as the disk needs for it.
void verify_blocks(Io& io, const std::filesystem::path& path, const FileBlocks& blocks, Findings& findings,
                   FunctionRef<void(int64_t block)> read) {
  const size_t before = findings.size();
  try {
    BlockReader reader(io, path, blocks);
    for (int64_t block = 0; block < blocks.block_count(); ++block) {
      if (findings.size() - before >= kMostFindingsOfAFile) return;
      // One damaged block does not hide the others: go on to the end.
      try {
        reader.load_block(block);
      } catch (const Error& error) {
        findings.push_back(
            {path.filename().string(), without_path(error, path), block * FileBlocks::kBlockBytes});
      }
      read(block);
    }
  } catch (const Error& error) {
    findings.push_back({path.filename().string(), without_path(error, path), 0});
  }
}

/// Verifies both files of a rank.
void verify_rank(Io& io, const std::filesystem::path& directory, const Manifest& manifest,
                 const StoredFile& file, Findings& findings, FunctionRef<void(int64_t bytes)> read) {
  const std::filesystem::path path = directory / rank_file_name(file.rank),
                              sidecar = directory / sidecar_file_name(file.rank);
  const bool is_complete = has_size(io, path, file.bytes, findings);
  // Without the sidecar there are no hashes to compare the file with.
  if (!has_size(io, sidecar, file.sidecar_bytes, findings)) return;
  std::optional<FileBlocks> blocks;
  try {
    blocks = read_sidecar(io, directory, file, manifest.arrays_of(file.rank));
  } catch (const Error& error) {
    findings.push_back({sidecar.filename().string(), without_path(error, sidecar), 0});
  }
  if (blocks && is_complete)
    verify_blocks(io, path, *blocks, findings,
                  [&](int64_t block) { read(std::min((block + 1) * FileBlocks::kBlockBytes, file.bytes)); });
}

/// Other files do no harm to a resume, but tell of a copy that went wrong.
void find_foreign_files(Io& io, const std::filesystem::path& directory, const Manifest& manifest,
                        Findings& findings) {
  std::set<std::string> known = {Manifest::kFileName};
  for (const StoredFile& file : manifest.files) {
    known.insert(rank_file_name(file.rank));
    known.insert(sidecar_file_name(file.rank));
  }
  for (const Io::Entry& entry : list_directory(io, directory))
    if (known.count(entry.name) == 0)
      findings.push_back({entry.name, "does not belong to this checkpoint", 0});
}

}  // namespace

std::vector<CheckpointDamage> verify_checkpoint(Io& io, const std::filesystem::path& directory,
                                                const std::function<void(int64_t, int64_t)>& report) {
  Findings findings;
  const std::filesystem::path path = directory / Manifest::kFileName;
  try {
    const Manifest manifest = read_manifest(io, directory);
    const std::optional<int64_t> step = parse_step_directory_name(directory.filename().string());
    // A renamed directory would be resumed at the wrong step.
    if (step && *step != manifest.state.step)
      findings.push_back({Manifest::kFileName, fmt::format("is of step {}", manifest.state.step), 0});
    const std::string refusal = Takeovers::read(io, folder_of_checkpoint(directory))
                                    .refusal(manifest.state.step, manifest.state.takeover);
    if (!refusal.empty()) findings.push_back({Manifest::kFileName, refusal, 0});
    int64_t before = 0, total = 0;  // without the sidecars, which are small
    for (const StoredFile& file : manifest.files) total += file.bytes;
    for (const StoredFile& file : manifest.files) {
      verify_rank(io, directory, manifest, file, findings, [&](int64_t bytes) {
        if (report) report(before + bytes, total);
      });
      before += file.bytes;
    }
    find_foreign_files(io, directory, manifest, findings);
  } catch (const Error& error) {
    findings.push_back({Manifest::kFileName, without_path(error, path), 0});
  }
  return findings;
}

}  // namespace ripstop
