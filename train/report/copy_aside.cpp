#include "train/report/copy_aside.h"

#include <fmt/format.h>

#include "data/files/directory.h"
#include "data/files/file.h"
#include "model/core/error.h"

namespace ripstop {

std::string copy_aside(Io& io, const std::filesystem::path& path, const std::string& suffix) {
  std::filesystem::path aside = path;
  aside += "." + suffix;
  for (int number = 2; path_exists(io, aside); ++number) {
    aside = path;
    aside += fmt::format(".{}.{}", suffix, number);
  }
  const InputFile from(path, ExitCode::kStorage);
  OutputFile to(io, aside);
  try {
    copy_range(from, 0, to, 0, from.bytes());
    to.sync();
    to.close();
    // The caller cuts the original next: the name of the copy must be on the disk before.
    sync_directory(io, path.has_parent_path() ? path.parent_path() : ".");
  } catch (...) {
    // A full disk would else get fuller with every start.
    (void)io.unlink(aside);
    throw;
  }
  return aside.filename().string();
}

std::string copy_aside(const std::filesystem::path& path, const std::string& suffix) {
  return copy_aside(posix_io(), path, suffix);
}

}  // namespace ripstop
