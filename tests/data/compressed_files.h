// Writes gzip and tar.gz files for tests.
#pragma once
#include <archive.h>
#include <archive_entry.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace ripstop {

inline void write_archive(const std::filesystem::path& path, bool tar,
                          const std::vector<std::pair<std::string, std::string>>& files) {
  std::filesystem::create_directories(path.parent_path());
  archive* out = archive_write_new();
  archive_write_add_filter_gzip(out);
  if (tar) {
    archive_write_set_format_ustar(out);
  } else {
    archive_write_set_format_raw(out);
  }
  archive_write_open_filename(out, path.c_str());
  for (const auto& [name, bytes] : files) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(bytes.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_write_header(out, entry);
    archive_write_data(out, bytes.data(), bytes.size());
    archive_entry_free(entry);
  }
  archive_write_close(out);
  archive_write_free(out);
}

inline void write_gzip(const std::filesystem::path& path, const std::string& bytes) {
  write_archive(path, false, {{"data", bytes}});
}

inline void write_tar_gzip(const std::filesystem::path& path,
                           const std::vector<std::pair<std::string, std::string>>& files) {
  write_archive(path, true, files);
}

}  // namespace ripstop
