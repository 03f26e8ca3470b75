// Whether a mesh loads exactly what a checkpoint of another mesh holds:
//   reload CHECKPOINT REPLICATE FSDP TENSOR
// loads CHECKPOINT on that mesh, saves it there, loads that on the mesh of CHECKPOINT and saves it there.
// Ends with 1 if a byte of weights or moments is then another, with 64 if CHECKPOINT cannot be loaded so. An
// error that undoes itself on the way back is left to checkpoint_reshard_test.cpp, which knows each value.
#include <cstdio>
#include <cstdlib>

#include "tests/train/checkpoint/checkpoint_model.h"

namespace ripstop {
namespace {

/// Loads `from` on `mesh`, and saves it below `to`.
std::filesystem::path copied(const std::filesystem::path& from, const MeshSizes& mesh,
                             const std::filesystem::path& to) {
  QuickIo io;
  const Manifest manifest = read_manifest(io, from);
  const CheckpointState& state = manifest.state;
  SmallRun run(state.model, mesh, manifest.moments, state.adapted ? state.adapted->lora : LoraConfig{});
  run.read(io, from);
  for (const std::optional<Error>& error : run.save(io, to, state))
    if (error) throw Error(*error);
  return to / step_directory_name(state.step);
}

int compare(const std::filesystem::path& checkpoint, const MeshSizes& mesh) {
  ScratchDirectory scratch;
  QuickIo io;
  const std::filesystem::path there = copied(checkpoint, mesh, scratch / "there");
  const Manifest manifest = read_manifest(io, checkpoint);
  const std::filesystem::path back = copied(there, manifest.mesh, scratch / "back");
  for (const StoredFile& file : manifest.files) {
    const std::string name = rank_file_name(file.rank);
    if (read_bytes(checkpoint / name) == read_bytes(back / name)) continue;
    std::fprintf(stderr, "%s differs\n", name.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace ripstop

int main(int count, char** words) {
  if (count != 5) return 64;
  try {
    const ripstop::MeshSizes mesh{std::atol(words[2]), std::atol(words[3]), std::atol(words[4])};
    return ripstop::compare(words[1], mesh);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 64;
  }
}
