// What the names of files say about their contents. Names decide, because a directory may hold files of other
// programs.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/corpus.h"

namespace ripstop {

/// The kind that a file's name stands for; kAuto if none. kJsonl for JSONL of running text, too.
SourceKind kind_of_name(const std::filesystem::path& path);

/// Whether a source of `kind` reads files of this name; for kAuto, whether any kind does.
bool is_read_as(SourceKind kind, const std::filesystem::path& path);

/// The ends of the names that a source of `kind` reads: ".jsonl, .json, also with .gz".
std::string_view name_ends(SourceKind kind);

/// Whether the name says that the file is compressed.
bool is_compressed(const std::filesystem::path& path);

/// A known format that prepare does not read, and how to convert it.
struct ForeignFormat {
  std::string what;      ///< "a Parquet file"; empty if the name stands for no such format
  std::string convert;   ///< a hint for the user
  bool is_text = false;  ///< --source text may read it
};
ForeignFormat foreign_format(const std::filesystem::path& path);

/// The split that a file's name stands for: validation for val* and dev*, test for test*, else train.
Split split_of_file(const std::filesystem::path& path);

/// "test_b.jsonl.gz counts as test, val.jsonl as validation", for the first few of `files`.
std::string describe_splits(const std::vector<std::filesystem::path>& files);

/// "a.csv (a CSV file), notes.md and 2 more", for the first few of `files`.
std::string describe_passed_over(const std::vector<std::filesystem::path>& files);

/// `path` with a name that counts as train: "d/train_x.jsonl" for "d/test_x.jsonl".
std::filesystem::path renamed_to_train(const std::filesystem::path& path);

/// The shell command that converts `path` with `filter` into a new file beside it, of the same split: "zcat
/// d/val.json.gz | jq -c . > d/val.lines.jsonl" for `mark` "lines" and `extension` ".jsonl". An empty
/// `extension` stands for the extension of `path`. The new name is not in use yet.
std::string conversion_command(const std::filesystem::path& path, std::string_view filter,
                               std::string_view mark, std::string_view extension = "");

}  // namespace ripstop
