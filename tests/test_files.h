// Where tests find their files.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

namespace ripstop {

/// A file of tests/golden, or of $RIPSTOP_GOLDEN if the programs were carried to another machine.
inline std::filesystem::path golden_file(const std::string& name) {
  const char* root = std::getenv("RIPSTOP_GOLDEN");
  return (root ? std::filesystem::path(root)
               : std::filesystem::path(RIPSTOP_SOURCE_DIR) / "tests" / "golden") /
         name;
}

/// A file of the reference material that is not part of the repository: below $RIPSTOP_SHARED, else below
/// `shared` beside the checkout. Empty if it is absent; the test then skips.
inline std::optional<std::filesystem::path> shared_file(const std::string& name) {
  const char* root = std::getenv("RIPSTOP_SHARED");
  const std::filesystem::path path =
      (root ? std::filesystem::path(root)
            : std::filesystem::path(RIPSTOP_SOURCE_DIR).parent_path() / "shared") /
      name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace ripstop
