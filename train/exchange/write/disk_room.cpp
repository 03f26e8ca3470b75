#include "train/exchange/write/disk_room.h"

#include <cerrno>

#include "train/report/human_text.h"

namespace ripstop {

void require_room(Io& io, const std::filesystem::path& folder, int64_t bytes, const std::string& what_needs,
                  const std::string& hint) {
  int64_t room = 0;
  if (io.free_bytes(folder, room) != 0) fail_storage(folder, "get the free space", errno);
  if (room >= bytes) return;
  throw Error(
      ExitCode::kStorage,
      fmt::format("{}: {} free, {} {}", folder.string(), bytes_text(room), what_needs, bytes_text(bytes)),
      hint);
}

}  // namespace ripstop
