#include "data/prepare/prepare_json.h"

#include "data/dataset/token_dataset.h"
#include "data/files/file.h"
#include "data/files/whole_file.h"
#include "data/hdf5/hdf5.h"
#include "data/text/json_reader.h"

namespace ripstop {
namespace {

// Increase the version if an old reader would misread a new file; new keys alone need no new version.
constexpr int64_t kFormatVersion = 1;

nlohmann::ordered_json to_json(const LengthStatistics& s) {
  return {{"mean", s.mean}, {"median", s.median}, {"p90", s.p90}, {"p99", s.p99}, {"longest", s.longest}};
}

/// The entries of the .h5 files, with which TokenDataset compares a file before libhdf5 opens it.
nlohmann::ordered_json describe_files(const std::filesystem::path& directory, const PrepareReport& report) {
  nlohmann::ordered_json files;
  for (int s = 0; s < kSplits; ++s) {
    const std::string file_name = fmt::format("{}.h5", to_string(static_cast<Split>(s)));
    // kStorage: this process has just written the file.
    const InputFile file(directory / file_name, ExitCode::kStorage);
    const Hdf5Array tokens = Hdf5File(directory / file_name, ExitCode::kStorage).array("tokens");
    files[file_name] = {{"bytes", file.bytes()},
                        {"tokens_offset", tokens.offset_bytes},
                        {"tokens_bytes", tokens.bytes()},
                        {"hash_outside_tokens", hash_outside(file, tokens.offset_bytes, tokens.bytes())},
                        {"content_hash", report.splits[static_cast<size_t>(s)].content_hash}};
  }
  return files;
}

}  // namespace

void write_prepare_json(const std::filesystem::path& directory, const PrepareOptions& options,
                        const std::string& prompt_template, const TokenizerChoice& choice,
                        const PrepareReport& report) {
  nlohmann::ordered_json json;
  json["format_version"] = kFormatVersion;
  auto& arguments = json["arguments"];
  // The resolved kind, not "auto", tells how to make the data set again.
  arguments["source"] = to_string(report.source.kind);
  for (const auto& input : options.source.inputs) arguments["input"].push_back(input.string());
  if (!options.source.splits.empty()) arguments["splits"] = options.source.splits.string();
  if (report.source.kind == SourceKind::kSynthetic) {
    arguments["examples"] = options.source.examples;
    arguments["seed"] = options.source.seed;
  }
  arguments["document_field"] = options.source.document_field;
  arguments["summary_field"] = options.source.summary_field;
  arguments["validation_fraction"] = options.source.validation_fraction;
  if (options.vocab_size > 0) arguments["vocab_size"] = options.vocab_size;
  if (!options.tokenizer.empty()) arguments["tokenizer"] = options.tokenizer.string();
  if (!options.choice.eos_token.empty()) arguments["eos_token"] = options.choice.eos_token;
  if (options.choice.reads_special_tokens)
    arguments["read_special_tokens"] = *options.choice.reads_special_tokens;
  arguments["template"] = prompt_template;
  if (!options.chat_template.empty()) {
    arguments["chat_template"] = *choice.chat_template;  // the name that "auto" found
    arguments["chat_date"] = choice.chat_date;
  }
  arguments["strict"] = options.strict;
  json["tokenizer"] = {{"sha256", report.tokenizer_sha256},
                       {"vocabulary_size", report.vocabulary_size},
                       {"trained", report.tokenizer_trained}};
  for (int s = 0; s < kSplits; ++s) {
    const SplitReport& split = report.splits[static_cast<size_t>(s)];
    nlohmann::ordered_json skipped;
    for (size_t why = 0; why < split.skipped.size(); ++why)
      skipped[std::string(kWords<Skip>[why])] = split.skipped[why];
    json["splits"][std::string(to_string(static_cast<Split>(s)))] = {
        {"examples", split.examples},
        {"tokens", split.tokens},
        {"targets", split.targets},
        {"skipped", skipped},
        {"with_control_characters", split.control_characters},
        {"document_tokens", to_json(split.document_tokens)},
        {"summary_tokens", to_json(split.summary_tokens)},
        {"example_tokens", to_json(split.example_tokens)}};
  }
  json["absent_ids"] = report.counts.absent_ids;
  json["lost_links"] = report.counts.lost_links;
  json["unlisted_files"] = report.counts.unlisted;
  json["files"] = describe_files(directory, report);
  create_file(posix_io(), directory / "prepare.json", text_of_json(json, 2) + "\n");
}

}  // namespace ripstop
