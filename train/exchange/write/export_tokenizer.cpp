#include "train/exchange/write/export_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "data/tokenizer/sentencepiece_model.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

// Source: RFC 4648.
std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t j = 0; j < 3; ++j)
      three = three << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : kDigits[three >> (18 - 6 * j) & 63U];
  }
  return text;
}

int64_t letters_of(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

struct Merge {
  std::string_view left, right;
  float score = 0;
  int64_t letters = 0, left_letters = 0;
};

// SentencePiece merges the neighbours whose piece has the best score, the leftmost among equal scores;
// `tokenizers` merges the neighbours that come first in this list. Usually only runs of spaces have equal
// scores: with the merges of the longest run first, runs grow to the right, as in SentencePiece.
std::vector<Merge> merges_of(const SentencePieceModel& model) {
  std::unordered_map<std::string_view, float> scores;
  for (const ModelPiece& piece : model.pieces)
    if (piece.kind == PieceKind::kNormal) scores.emplace(piece.text, piece.score);
  std::vector<Merge> merges;
  for (const ModelPiece& piece : model.pieces) {
    if (piece.kind != PieceKind::kNormal) continue;
    const std::string_view text = piece.text;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const std::string_view left = text.substr(0, cut), right = text.substr(cut);
      if (scores.contains(left) && scores.contains(right))
        merges.push_back({left, right, piece.score, letters_of(text), letters_of(left)});
    }
  }
  std::ranges::stable_sort(merges, [](const Merge& a, const Merge& b) {
    return std::tuple(a.score, a.letters, a.left_letters) > std::tuple(b.score, b.letters, b.left_letters);
  });
  return merges;
}

// The "model" of tokenizer.json, as text, because a JSON tree of a large vocabulary would take much memory.
std::string model_json(const SentencePieceModel& model, const std::string& unk, int32_t unk_id) {
  const bool is_bpe = model.algorithm == SentencePieceModel::kBpe;
  std::string text =
      is_bpe ? fmt::format(R"({{"type":"BPE","dropout":null,"unk_token":{},"continuing_subword_prefix":null,)"
                           R"("end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":{},)"
                           R"("ignore_merges":false,"vocab":{{)",
                           text_of_json(unk), model.byte_fallback)
             : fmt::format(R"({{"type":"Unigram","unk_id":{},"byte_fallback":{},"vocab":[)", unk_id,
                           model.byte_fallback);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const ModelPiece& piece = model.pieces[id];
    const std::string name = text_of_json(piece.text);
    text += id == 0 ? "\n" : ",\n";
    text += is_bpe ? fmt::format("{}:{}", name, id)
                   : fmt::format("[{},{}]", name, static_cast<double>(piece.score));
  }
  if (!is_bpe) return text + "]}";
  text += "},\n\"merges\":[";
  const char* between = "\n";
  for (const Merge& merge : merges_of(model)) {
    text += between + text_of_json(fmt::format("{} {}", merge.left, merge.right));
    between = ",\n";
  }
  return text + "]}";
}

Json replace(const Json& pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

Json normalizer_of(const SentencePieceModel& model) {
  Json steps = Json::array();
  if (!model.character_map.empty())
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(model.character_map)}});
  if (model.removes_extra_spaces) {
    steps.push_back(replace({{"Regex", "\\A +| +\\z"}}, ""));
    steps.push_back(replace({{"Regex", " {2,}"}}, " "));
  }
  if (model.adds_space) steps.push_back({{"type", "Prepend"}, {"prepend", kSpacePiece}});
  steps.push_back(replace({{"String", " "}}, kSpacePiece));
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

Json decoder_of(const SentencePieceModel& model) {
  Json steps = Json::array({replace({{"String", kSpacePiece}}, " ")});
  if (model.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.adds_space) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

// The "post_processor" of tokenizer.json, which puts BOS before each text.
Json post_processor_of(const std::string& bos, int32_t bos_id) {
  const auto sequence = [&](const char* name, int type) {
    return Json::array({{{"SpecialToken", {{"id", bos}, {"type_id", type}}}},
                        {{"Sequence", {{"id", name}, {"type_id", type}}}}});
  };
  Json pair = sequence("A", 0);
  for (const Json& part : sequence("B", 1)) pair.push_back(part);
  return {{"type", "TemplateProcessing"},
          {"single", sequence("A", 0)},
          {"pair", std::move(pair)},
          {"special_tokens", {{bos, {{"id", bos}, {"ids", {bos_id}}, {"tokens", {bos}}}}}}};
}

// The id of the unknown piece. Tokenizer refuses a .model without one.
int32_t unk_of(const SentencePieceModel& model) {
  const auto found = std::ranges::find(model.pieces, PieceKind::kUnknown, &ModelPiece::kind);
  return static_cast<int32_t>(found - model.pieces.begin());
}

std::string tokenizer_json(const SentencePieceModel& model, const Tokenizer& tokenizer) {
  const auto name = [&](int32_t id) { return model.pieces[static_cast<size_t>(id)].text; };
  const int32_t bos = tokenizer.begin().front(), unk = unk_of(model);
  Json added = Json::array();
  for (size_t id = 0; id < model.pieces.size(); ++id)
    if (const ModelPiece& piece = model.pieces[id];
        piece.kind == PieceKind::kControl || piece.kind == PieceKind::kUnknown)
      added.push_back({{"id", id},
                       {"content", piece.text},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
  Json document = {{"version", "1.0"},
                   {"truncation", nullptr},
                   {"padding", nullptr},
                   {"added_tokens", std::move(added)},
                   {"normalizer", normalizer_of(model)},
                   {"pre_tokenizer", nullptr},
                   {"post_processor", post_processor_of(name(bos), bos)},
                   {"decoder", decoder_of(model)}};
  std::string text = text_of_json(document);
  text.pop_back();  // removes the closing brace
  return text + ",\n\"model\":" + model_json(model, name(unk), unk) + "}\n";
}

// A tokenizer_config.json for a tokenizer.json that has none. Without it AutoTokenizer of transformers 4
// takes LLaMA's class, by the model's type; that class adds another BOS to each text.
std::string config_of_json(const Tokenizer& tokenizer, int64_t longest) {
  Json config = {{"clean_up_tokenization_spaces", false},
                 {"model_input_names", {"input_ids", "attention_mask"}},
                 {"model_max_length", longest},
                 {"split_special_tokens", !tokenizer.reads_special_tokens() && !tokenizer.files().questions},
                 {"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (tokenizer.begin().size() == 1) config["bos_token"] = tokenizer.piece(tokenizer.begin().front()).name;
  if (tokenizer.has_eos()) config["eos_token"] = tokenizer.piece(tokenizer.eos()).name;
  return text_of_json(config, 2) + "\n";
}

// The reason why tokenizer.json cannot describe the model; empty if it can.
std::string undescribable(const SentencePieceModel& model) {
  const auto has = [&](PieceKind kind) {
    return std::ranges::any_of(model.pieces, [&](const ModelPiece& piece) { return piece.kind == kind; });
  };
  if (model.algorithm > SentencePieceModel::kBpe) return "it is a model of words or letters";
  if (has(PieceKind::kUserDefined)) return "it has user-defined pieces";
  if (has(PieceKind::kUnused)) return "it has unused pieces";
  if (model.spaces_end_words || !model.escapes_spaces) return "its spaces are not at the begin of words";
  return "";
}

}  // namespace

ExportedTokenizer exported_tokenizer(const Tokenizer& tokenizer, int64_t longest) {
  ExportedTokenizer files;
  if (!tokenizer.begin().empty()) files.ids.bos = tokenizer.begin().front();
  if (tokenizer.has_eos()) files.ids.eos = tokenizer.eos();
  TokenizerFiles own = tokenizer.files();
  files.has_json = files.is_carried_json = own.is_json();
  if (files.has_json) {
    files.texts = std::move(own.carried);
    files.splits_special = !tokenizer.reads_special_tokens();
    // AutoTokenizer of transformers 5 builds LlamaTokenizer, GPT2Tokenizer and others anew, and ignores parts
    // of tokenizer.json. PreTrainedTokenizerFast reads all of it; options win over tokenizer_config.json.
    files.python = {"PreTrainedTokenizerFast",
                    files.splits_special ? ", split_special_tokens=True" : ", split_special_tokens=False"};
    if (tokenizer.files().find(kTokenizerConfigFile) == nullptr)
      files.texts.emplace_back(kTokenizerConfigFile, config_of_json(tokenizer, longest));
    else if (files.splits_special)
      files.difference = "names of special tokens in a text are tokens there, and text here";
    return files;
  }
  const SentencePieceModel model = read_sentencepiece_model(tokenizer.model());
  const std::string bos = tokenizer.piece(*files.ids.bos).name, eos = tokenizer.piece(tokenizer.eos()).name,
                    unk = tokenizer.piece(unk_of(model)).name;
  const std::string reason = undescribable(model);
  const Json config = {{"add_bos_token", true},
                       {"add_eos_token", false},
                       {"bos_token", bos},
                       {"clean_up_tokenization_spaces", false},
                       {"eos_token", eos},
                       {"legacy", true},
                       {"model_input_names", {"input_ids", "attention_mask"}},
                       {"model_max_length", longest},
                       {"pad_token", nullptr},
                       {"padding_side", "left"},
                       {"sp_model_kwargs", Json::object()},
                       {"split_special_tokens", true},
                       {"tokenizer_class", reason.empty() ? "PreTrainedTokenizerFast" : "LlamaTokenizer"},
                       {"unk_token", unk}};
  const Json special = {{"bos_token", bos}, {"eos_token", eos}, {"unk_token", unk}};
  own.carry_choice();  // names the .model as the file to read
  files.texts = std::move(own.carried);
  files.texts.emplace_back(kTokenizerConfigFile, text_of_json(config, 2) + "\n");
  files.texts.emplace_back(kSpecialTokensFile, text_of_json(special, 2) + "\n");
  if (!reason.empty()) {
    files.difference =
        "texts may get other ids there, as tokenizer.json cannot describe the tokenizer: " + reason;
    return files;
  }
  files.has_json = true;
  files.texts.emplace_back(kTokenizerJsonFile, tokenizer_json(model, tokenizer));
  if (model.algorithm != SentencePieceModel::kBpe)
    files.difference = fmt::format("{} and {} in a text are special tokens there, and text here", bos, eos);
  return files;
}

}  // namespace ripstop
