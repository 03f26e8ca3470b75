// File names, and what they say about contents. Names decide, not contents: a directory may hold files of
// other programs.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/corpus.h"

namespace ripstop {

/// The kind that a file's name stands for; kAuto if it stands for none. JSONL of running text has the name of
/// pairs, kJsonl.
SourceKind kind_of_name(const std::filesystem::path& path);

/// Whether a source of `kind` reads files of this name; for auto, whether any kind does.
bool is_read_as(SourceKind kind, const std::filesystem::path& path);

/// The ends of the names that a source of `kind` reads: ".jsonl, .json, also with .gz".
std::string_view name_ends(SourceKind kind);

/// Whether the name says that the file is compressed.
bool is_compressed(const std::filesystem::path& path);

/// A known format that prepare does not read, and the way to one that it reads.
struct ForeignFormat {
  std::string what;      ///< "a Parquet file"; empty if the name stands for no such format
  std::string convert;   ///< the line to type
  bool is_text = false;  ///< --source text may read it as it stands
};
ForeignFormat foreign_format(const std::filesystem::path& path);

/// The split that a file's name stands for: validation for val* and dev*, test for test*, train for any other
/// name.
Split split_of_file(const std::filesystem::path& path);

/// "test_b.jsonl.gz counts as test, val.jsonl as validation", for the first few of `files`.
std::string describe_splits(const std::vector<std::filesystem::path>& files);

/// "a.csv (a CSV file), notes.md and 2 more", for the first few of `files`.
std::string describe_passed_over(const std::vector<std::filesystem::path>& files);

/// `path` with a name that counts as train: "d/train_x.jsonl" for "d/test_x.jsonl".
std::filesystem::path renamed_to_train(const std::filesystem::path& path);

/// The line for a shell that converts `path` with `filter` into a new file beside it, which counts as the
/// same split: "zcat d/val.json.gz | jq -c . > d/val.lines.jsonl" for `mark` "lines" and `extension`
/// ".jsonl". An empty `extension` keeps that of `path`. Overwrites no file.
std::string conversion_command(const std::filesystem::path& path, std::string_view filter,
                               std::string_view mark, std::string_view extension = "");

}  // namespace ripstop
