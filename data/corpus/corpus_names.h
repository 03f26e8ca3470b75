// Names of files tell their kind, their split, and whether they are data.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/corpus.h"

namespace ripstop {

/// The kind of source that a file name tells; kAuto if it tells none. Every JSON name is kJsonl, whatever the
/// file holds.
SourceKind kind_of_name(const std::filesystem::path& path);

/// Whether a source of `kind` reads files with this name. For kAuto: whether any kind does.
bool is_read_as(SourceKind kind, const std::filesystem::path& path);

/// File name extensions of `kind`, for messages: ".jsonl, .json, also with .gz".
std::string_view name_ends(SourceKind kind);

/// A known format that prepare does not read, or only as text, and how to convert it.
struct ForeignFormat {
  std::string what;  ///< "a Parquet file"; empty: the name tells no such format
  std::string convert;
  bool is_text = false;  ///< --source text may read it as it is
};
ForeignFormat foreign_format(const std::filesystem::path& path);

/// The split that the file name or a folder of `path` tells; nullopt if none does. The first rule that fits
/// decides:
/// - The first split word in the file name: train, training, validation or test anywhere; val, valid, dev,
///   devel, eval, trn or tst as the first or last word; testing, evaluation or development as the only word.
///   Each may end in "set", "data", "split" or "files". At the end, words of one or two letters and the marks
///   of conversion_command() do not count.
/// - A file name that begins with val, dev or test, unless two letters follow, of which the first is a vowel,
///   l or v (value, device, testimony).
/// - The innermost folder whose letters are a split word, from the file up to the directory in `inputs`
///   (--input) that holds it; only the file's own folder if the file itself is an input or `inputs` is empty.
///   With a single input, the topmost of these folders does not count.
std::optional<Split> named_split(const std::filesystem::path& path,
                                 const std::vector<std::filesystem::path>& inputs = {});
/// named_split(); train if the path tells no split.
Split split_of_file(const std::filesystem::path& path, const std::vector<std::filesystem::path>& inputs = {});

/// Text for messages about the splits of the first few of source.inputs: "test_b.jsonl.gz counts as test,
/// val.jsonl as validation".
std::string describe_splits(const CorpusSource& source);

/// One note for each split that has files of source.inputs, and one for the files whose paths tell no split.
std::vector<std::string> notes_on_splits(const CorpusSource& source);

/// Why no source reads a file below a directory: "hidden" (.NAME, or in a folder .NAME or __NAME), or "no
/// data" (about data, models or software: dataset_infos.json, README.txt). "" if there is no such reason.
/// `path` is relative to the directory.
std::string why_no_data(const std::filesystem::path& path);

/// Text for messages about the first few of `files`: "a.csv (a CSV file), notes.md and 2 more".
std::string describe_passed_over(const std::vector<PassedOver>& files);

/// `path` with a file name that counts as train: "d/train_x.jsonl" for "d/test_x.jsonl".
std::filesystem::path renamed_to_train(const std::filesystem::path& path);

/// A shell command that converts `path` with the program `filter` into a new file beside it: for `mark`
/// "lines" and `extension` ".jsonl", "zcat d/val.json.gz | jq -c . > d/val.lines.jsonl". If `extension` is
/// empty, the new file has the extension of `path` without .gz. The new name is not in use.
std::string conversion_command(const std::filesystem::path& path, std::string_view filter,
                               std::string_view mark, std::string_view extension = "");

}  // namespace ripstop
