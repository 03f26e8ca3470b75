#include "train/checkpoint/verify.h"

#include <algorithm>
#include <optional>
#include <set>

#include "data/files/directory.h"
#include "model/core/error.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/file_blocks.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/takeovers.h"

namespace ripstop {
namespace {

// A limit, because a file of another checkpoint may differ in every block.
constexpr size_t kMostFindingsOfAFile = 100;

class Verifier {
 public:
  Verifier(Io& io, const std::filesystem::path& directory) : io_(io), directory_(directory) {}

  std::vector<CheckpointDamage> verify(FunctionRef<void(int64_t, int64_t)> read) {
    finding_of(Manifest::kFileName, 0, [&] {
      const Manifest manifest = read_manifest(io_, directory_);
      const std::optional<int64_t> step = parse_step_directory_name(directory_.filename().string());
      // A run does not resume from a directory with the name of another step.
      if (step && *step != manifest.state.step)
        add(Manifest::kFileName, fmt::format("is of step {}", manifest.state.step));
      const std::string refusal = Takeovers::read(io_, folder_of_checkpoint(directory_))
                                      .refusal(manifest.state.step, manifest.state.takeover);
      if (!refusal.empty()) add(Manifest::kFileName, refusal);
      int64_t before = 0, total = 0;  // the small sidecars do not count
      for (const StoredFile& file : manifest.files) total += file.bytes;
      for (const StoredFile& file : manifest.files) {
        verify_rank(manifest, file, [&](int64_t bytes) { read(before + bytes, total); });
        before += file.bytes;
      }
      find_foreign_files(manifest);
    });
    return std::move(findings_);
  }

 private:
  void add(const std::string& file, const std::string& what, int64_t offset = 0) {
    findings_.push_back({file, what, offset});
  }

  /// Returns false if `body` throws an Error, whose text without the path then becomes a finding.
  bool finding_of(const std::string& file, int64_t offset, FunctionRef<void()> body) {
    try {
      body();
      return true;
    } catch (const Error& error) {
      const std::string what = error.what(), path = (directory_ / file).string() + ": ";
      add(file, what.starts_with(path) ? what.substr(path.size()) : what, offset);
      return false;
    }
  }

  /// Sizes come first, because a wrong size is found without reading, and tells more than a wrong hash.
  bool has_size(const std::string& file, int64_t bytes) {
    Io::Status found;
    const bool is_file = io_.status(directory_ / file, found) == 0 && found.is_file;
    return finding_of(file, is_file ? std::min(found.bytes, bytes) : 0,
                      [&] { check_size(io_, directory_ / file, bytes); });
  }

  void verify_rank(const Manifest& manifest, const StoredFile& file, FunctionRef<void(int64_t bytes)> read) {
    const std::string name = rank_file_name(file.rank), sidecar = sidecar_file_name(file.rank);
    const bool is_complete = has_size(name, file.bytes);
    if (!has_size(sidecar, file.sidecar_bytes)) return;
    FileBlocks blocks;
    const bool has_blocks = finding_of(
        sidecar, 0, [&] { blocks = read_sidecar(io_, directory_, file, manifest.arrays_of(file.rank)); });
    if (!has_blocks || !is_complete) return;
    const size_t before = findings_.size();
    finding_of(name, 0, [&] {
      BlockReader reader(io_, directory_ / name, blocks);
      for (int64_t block = 0; block < blocks.block_count(); ++block) {
        if (findings_.size() - before >= kMostFindingsOfAFile) return;
        const int64_t begin = block * FileBlocks::kBlockBytes;
        finding_of(name, begin, [&] { reader.load_block(block); });
        read(begin + blocks.block_bytes(block));
      }
    });
  }

  /// Foreign files do not harm a resume, but are a sign of a copy that went wrong.
  void find_foreign_files(const Manifest& manifest) {
    std::set<std::string> known = {Manifest::kFileName};
    for (const StoredFile& file : manifest.files)
      known.insert({rank_file_name(file.rank), sidecar_file_name(file.rank)});
    for (const Io::Entry& entry : list_directory(io_, directory_))
      if (!known.contains(entry.name)) add(entry.name, "does not belong to this checkpoint");
  }

  Io& io_;
  const std::filesystem::path& directory_;
  std::vector<CheckpointDamage> findings_;
};

}  // namespace

std::vector<CheckpointDamage> verify_checkpoint(Io& io, const std::filesystem::path& directory,
                                                FunctionRef<void(int64_t, int64_t)> report) {
  return Verifier(io, directory).verify(report);
}

}  // namespace ripstop
