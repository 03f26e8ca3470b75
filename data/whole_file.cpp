#include "data/whole_file.h"

#include <string>
#include <system_error>

#include "data/file.h"

namespace ripstop {

void write_whole_file(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path beside = path.string() + ".partial";
  const std::filesystem::path directory = path.has_parent_path() ? path.parent_path() : ".";
  std::error_code error;
  std::filesystem::remove(beside, error);  // of a process that was killed
  try {
    OutputFile file(beside);
    file.append(text.data(), std::ssize(text));
    file.sync();
    std::filesystem::rename(beside, path, error);
    if (error) fail(ExitCode::kStorage, "{}: cannot write: {}", path.string(), error.message());
  } catch (...) {
    std::filesystem::remove(beside, error);
    throw;
  }
  sync_directory(directory);
}

}  // namespace ripstop
