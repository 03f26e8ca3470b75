// Tells kind and split of a file by its name, because a directory may hold files of other programs.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/corpus.h"

namespace ripstop {

/// The kind of source that a file name means; kAuto if none. Every JSONL name is kJsonl, even if the file
/// holds running text.
SourceKind kind_of_name(const std::filesystem::path& path);

/// Whether a source of `kind` reads files with this name. For kAuto: whether any kind does.
bool is_read_as(SourceKind kind, const std::filesystem::path& path);

/// File name extensions of `kind`, for messages: ".jsonl, .json, also with .gz".
std::string_view name_ends(SourceKind kind);

bool is_compressed(const std::filesystem::path& path);

/// A known format that prepare does not read, and how to convert it.
struct ForeignFormat {
  std::string what;      ///< "a Parquet file"; empty if the name has no such format
  std::string convert;   ///< hint how to convert the file
  bool is_text = false;  ///< --source text may read the format as it is
};
ForeignFormat foreign_format(const std::filesystem::path& path);

/// The split that a file name means: validation for val* and dev*, test for test*, train for other names.
Split split_of_file(const std::filesystem::path& path);

/// The splits of the first few of `files`, for messages: "test_b.jsonl.gz counts as test, val.jsonl as
/// validation".
std::string describe_splits(const std::vector<std::filesystem::path>& files);

/// The first few of `files`, for messages: "a.csv (a CSV file), notes.md and 2 more".
std::string describe_passed_over(const std::vector<std::filesystem::path>& files);

/// `path` with a file name that counts as train: "d/train_x.jsonl" for "d/test_x.jsonl".
std::filesystem::path renamed_to_train(const std::filesystem::path& path);

/// A shell command that converts `path` with the program `filter` into a new file beside it: for `mark`
/// "lines" and `extension` ".jsonl", "zcat d/val.json.gz | jq -c . > d/val.lines.jsonl". If `extension` is
/// empty, the new file has the extension of `path`. The new name counts as the same split and is free.
std::string conversion_command(const std::filesystem::path& path, std::string_view filter,
                               std::string_view mark, std::string_view extension = "");

}  // namespace ripstop
