// Tells kind and split of a file by its name. Names decide because a directory may hold files of other
// programs.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/corpus.h"

namespace ripstop {

/// The kind of source that the name of a file stands for; kAuto if it stands for none. For any JSONL name it
/// is kJsonl, even if the file holds running text.
SourceKind kind_of_name(const std::filesystem::path& path);

/// Whether a source of `kind` reads files with the name of `path`. For kAuto: whether a source of any kind
/// does.
bool is_read_as(SourceKind kind, const std::filesystem::path& path);

/// The file name extensions that a source of `kind` reads, for messages: ".jsonl, .json, also with .gz".
std::string_view name_ends(SourceKind kind);

/// Whether the name of `path` ends like that of a compressed file: .gz or .tgz.
bool is_compressed(const std::filesystem::path& path);

/// A known format that prepare does not read, and how to convert it.
struct ForeignFormat {
  std::string what;      ///< "a Parquet file"; empty if the name stands for no such format
  std::string convert;   ///< hint how the user can convert the file
  bool is_text = false;  ///< the format is text, which --source text may read as it is
};
/// The foreign format that the name of `path` stands for.
ForeignFormat foreign_format(const std::filesystem::path& path);

/// The split that a file's name stands for: validation for val* and dev*, test for test*, train for any other
/// name.
Split split_of_file(const std::filesystem::path& path);

/// Text for messages about the splits of the first few of `files`: "test_b.jsonl.gz counts as test, val.jsonl
/// as validation".
std::string describe_splits(const std::vector<std::filesystem::path>& files);

/// Text for messages about the first few of `files`: "a.csv (a CSV file), notes.md and 2 more".
std::string describe_passed_over(const std::vector<std::filesystem::path>& files);

/// `path` with its file name changed to one that counts as train: "d/train_x.jsonl" for "d/test_x.jsonl".
std::filesystem::path renamed_to_train(const std::filesystem::path& path);

/// The shell command that converts `path` with the program `filter` into a new file beside `path`. For `mark`
/// "lines" and `extension` ".jsonl" it is "zcat d/val.json.gz | jq -c . > d/val.lines.jsonl". If `extension`
/// is empty, the new file has the extension of `path`. The name of the new file counts as the same split, and
/// no such file exists yet.
std::string conversion_command(const std::filesystem::path& path, std::string_view filter,
                               std::string_view mark, std::string_view extension = "");

}  // namespace ripstop
