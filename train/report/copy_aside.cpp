#include "train/report/copy_aside.h"

#include <fmt/format.h>

#include "data/directory.h"
#include "data/file.h"
#include "model/core/error.h"

namespace ripstop {

std::string copy_aside(const std::filesystem::path& path, const std::string& suffix) {
  std::filesystem::path aside = path;
  aside += "." + suffix;
  for (int number = 2; path_exists(posix_io(), aside); ++number) {
    aside = path;
    aside += fmt::format(".{}.{}", suffix, number);
  }
  const InputFile from(path, ExitCode::kStorage);
  OutputFile to(aside);
  copy_range(from, 0, to, 0, from.bytes());
  to.sync();
  to.close();
  return aside.filename().string();
}

}  // namespace ripstop
