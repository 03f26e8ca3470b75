// Damaged and forged models of Hugging Face make the program end with exit code 65 and an error of one line.
#include <gtest/gtest.h>

#include <functional>
#include <regex>

#include "tests/expect_error.h"
#include "tests/train/commands/run_program.h"
#include "tests/train/exchange/torch_writer.h"
#include "train/exchange/hugging_face/pretrained_model.h"

namespace ripstop {
namespace {

class BadPretrained : public testing::Test {
 protected:
  std::filesystem::path file(const std::string& name = "model.safetensors") const {
    return directory_.path() / name;
  }

  /// Expects `checkpoint inspect` to refuse the directory.
  void expect_refused(const std::string& what) const {
    const ProgramRun run = run_program("checkpoint inspect '" + directory_.path().string() + "'");
    EXPECT_EQ(run.exit_code, 65) << what << "\n" << run.out << run.err;
    EXPECT_EQ(run.out, "");
    const std::regex one_line("FATAL code=65 rank=0 step=- what=\"[^\n]{1,600}\"( hint=\"[^\n]+\")?\n");
    EXPECT_TRUE(std::regex_match(run.err, one_line)) << run.err;
    EXPECT_HAS(run.err, what);
    EXPECT_HAS(run.err, directory_.path().string());
  }
  /// The same, with `header` and `data_bytes` zeros as model.safetensors.
  void expect_header_refused(const std::string& header, int64_t data_bytes, const std::string& what) const {
    write_bytes(file(), safetensors_bytes(header, data_bytes));
    expect_refused(what);
  }
  /// The same, with one tensor that `entry` describes.
  void expect_entry_refused(const std::string& entry, int64_t data_bytes, const std::string& what) const {
    expect_header_refused("{\"w\":" + entry + "}", data_bytes, what);
  }

  PretrainedDirectory directory_;
};

TEST_F(BadPretrained, FilesThatAreNoSafetensors) {
  directory_.write();
  const std::string good = read_bytes(file());
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    write_bytes(file(), bytes);
    expect_refused(what);
  };
  refused("", "has 0 bytes");
  refused(std::string(7, '\1'), "has 7 bytes");
  refused(std::string(64, '\xff'), "header has 18446744073709551615 bytes");
  refused(safetensors_bytes("{}", 0).replace(7, 1, "\x80"), "header has 9223372036854775810 bytes");
  refused(good.substr(0, 100), "is cut short: it has 100 bytes, its header alone");
  refused(good.substr(0, good.size() - 1), "is cut short");
  refused(good + '\0', "has 1 bytes after its last tensor");
  refused("version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS");
  refused("PK\x03\x04 and more of an archive", "ZIP archive");
  refused("<!DOCTYPE html><html></html>", "web page");
}

TEST_F(BadPretrained, Headers) {
  directory_.write();
  expect_header_refused("", 8, "is not JSON");
  expect_header_refused("[1]", 8, "is not a JSON object");
  expect_header_refused("{\"w\": NaN}", 8, "is not JSON");
  expect_header_refused(std::string(3000, '['), 8, "nests deeper");
  expect_header_refused("{\"w\xff\":{}}", 8, "is not JSON");
  expect_header_refused("{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "0 bytes");
  expect_header_refused("{\"w\":{},\"w\":{}}", 8, "has 'w' twice");
  const std::string name_of_lines = R"("a\nFATAL code=0\u001b[2J": {"dtype":"F32","shape":[3],)";
  expect_header_refused("{" + name_of_lines + "\"data_offsets\":[0,8]}}", 8, "must have 12 bytes");
  expect_entry_refused("null", 8, "object with 'dtype' was expected");
  expect_entry_refused(R"({"dtype":"F4","shape":[2],"data_offsets":[0,8]})", 8, "unknown dtype 'F4'");
  expect_entry_refused(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8, "impossible shape");
  expect_entry_refused(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]})", 8,
                       "impossible shape");
  expect_entry_refused(R"({"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]})", 8,
                       "impossible shape");
  expect_entry_refused(R"({"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]})", 8,
                       "impossible shape");
  expect_entry_refused(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8, "offsets give it -8");
  expect_entry_refused(R"({"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]})", 8,
                       "impossible offsets");
  expect_entry_refused(
      R"({"dtype":"F32","shape":[2],"data_offsets":[9223372036854775800,9223372036854775808]})", 8,
      "impossible offsets");
  expect_entry_refused(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})", 8, "w ends at byte");
  expect_entry_refused(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", 8, "has 4 bytes before w");
  expect_header_refused(R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                        R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                        8, "w shares bytes");
}

TEST_F(BadPretrained, Configs) {
  directory_.write();
  using Json = nlohmann::ordered_json;
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"hidden_size", 9223372036854775808u}}, "'hidden_size' must be a whole number"},
      {{{"hidden_size", 7}}, "hidden_size must be a multiple of num_attention_heads"},
      {{{"hidden_size", 2}}, "must be even"},
      {{{"intermediate_size", 0}}, "'intermediate_size' must be"},
      {{{"num_hidden_layers", int64_t{1} << 39}}, "num_hidden_layers must be from 1 to"},
      {{{"num_hidden_layers", 4000}}, "too few for the 4000 layers"},
      {{{"num_attention_heads", 0}}, "'num_attention_heads' must be"},
      {{{"num_attention_heads", 3}}, "multiple of num_attention_heads"},
      {{{"num_attention_heads", 16}}, "num_attention_heads must be from 1 to hidden_size"},
      {{{"num_key_value_heads", 3}}, "num_key_value_heads must be from 1 to num_attention_heads"},
      {{{"num_key_value_heads", 2}}, "k_proj.weight is [4, 8], its config.json makes it [8, 8]"},
      {{{"head_dim", 2}}, "q_proj.weight is [8, 8], its config.json makes it [4, 8]"},
      {{{"vocab_size", -5}}, "'vocab_size' must be"},
      {{{"vocab_size", 17}}, "embed_tokens.weight is [16, 8], its config.json makes it [17, 8]"},
      {{{"rms_norm_eps", 0}}, "rms_norm_eps must be above 0"},
      {{{"rope_theta", -1}}, "rope_theta must be above 0"},
      {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8}}}}, "scales its rotary angles ('yarn')"},
      {{{"model_type", "mistral\n\u001b[31m"}}, "model_type 'mistral"},
      {{{"architectures", {"LlamaForSequenceClassification"}}}, "LlamaForSequenceClassification"},
      {{{"quantization_config", Json::object()}}, "quantized weights"},
      {{{"attention_bias", true}}, "has no model.layers.0.self_attn.o_proj.bias"},
      {{{"mlp_bias", true}}, "has mlp_bias"},
  };
  for (const auto& [changes, what] : cases) {
    Json config = directory_.config;
    config.update(changes);
    write_bytes(file("config.json"), config.dump());
    expect_refused(what);
  }
  for (const char* text : {"", "{", "[]", "{\"hidden_size\": Infinity}", "{\"a\": 1, \"a\": 1}", "{}"}) {
    write_bytes(file("config.json"), text);
    expect_refused("config.json: ");
  }
  write_bytes(file("config.json"), std::string((1 << 20) + 1, ' '));
  expect_refused("has more than 1048576 bytes");
}

TEST_F(BadPretrained, Indexes) {
  directory_.write_sharded();
  const std::string good = read_bytes(file("model.safetensors.index.json"));
  const std::string first = "\"model-00001-of-00002.safetensors\"";
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& what) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write_bytes(file("model.safetensors.index.json"), text);
    expect_refused(what);
  };
  refused("\"weight_map\"", "\"map\"", "has no 'weight_map'");
  refused("{\"total_size\":0}", "{", "is not JSON");
  refused(first, "null", "has no file name for model.embed_tokens.weight");
  refused(first, "\"\"", "names the file ''");
  refused(first, "\"../model.safetensors\"", "names the file '../model.safetensors'");
  refused(first, "\"/etc/passwd\"", "names the file '/etc/passwd'");
  refused(first, "\"a\\u0000b\"", "names the file 'a b'");
  refused(first, "\"" + std::string(300, 'n') + "\"", "names the file 'nnn");
  refused(first, "\"absent.safetensors\"", "absent.safetensors");
  refused(first, "\"model-00002-of-00002.safetensors\"", "and it is not");
  refused("\"model.embed_tokens.weight\"", "\"model.embed\"", "says that model.embed is in");
  refused("\"model.embed_tokens.weight\"", "\"lm_head.weight\"", "has 'lm_head.weight' twice");
  write_bytes(file("model.safetensors.index.json"), "{\"weight_map\": {}}");
  expect_refused("has 0 tensors");
}

TEST_F(BadPretrained, Pickles) {
  directory_.write_config();
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    write_bytes(file("pytorch_model.bin"), bytes);
    expect_refused(what);
  };
  const auto pickle_refused = [&](const std::string& opcodes, const std::string& what) {
    refused(zip_bytes(torch_members(pickle_bytes(opcodes), {})), what);
  };
  refused("", "no ZIP archive");
  pickle_refused("cos\nsystem\n" + text_op("true") + "\x85R", "asks for Python's os.system");
  pickle_refused("}" + text_op("a\nFATAL code=0\x1b[2J") + "Ns", "is no tensor");
  refused(zip_bytes({{.name = "a\n/data.pkl", .bytes = "x", .method = 8}}), "is compressed");
  std::vector<TensorToWrite> tensors = directory_.tensors;
  tensors.pop_back();
  refused(torch_bytes(tensors), "has no lm_head.weight");
}

TEST_F(BadPretrained, TensorsThatDoNotFit) {
  const PretrainedDirectory good;
  const auto refused = [&](const std::function<void()>& change, const std::string& what) {
    directory_.tensors = good.tensors;
    change();
    directory_.write();
    expect_refused(what);
  };
  refused([&] { directory_.erase("lm_head.weight"); }, "has no lm_head.weight");
  refused([&] { directory_.tensor("model.norm.weight").dtype = "I64"; }, "has the dtype I64");
  refused([&] { directory_.tensor("model.norm.weight").shape = {8, 1}; }, "is [8, 1]");
  refused([&] { directory_.tensor("lm_head.weight").shape = {8, 16}; }, "is [8, 16]");
  refused(
      [&] {
        directory_.tensors.push_back({"model.layers.2.mlp.up_proj.weight", {12, 8}});
      },
      "does not have: model.layers.2.mlp.up_proj.weight");
  refused([&] { directory_.tensors.push_back({"score.weight", {1, 8}}); }, "does not have: score.weight");
}

// Models of two parts put a word before or into each name.
TEST_F(BadPretrained, NamesOfWrappersAreShown) {
  const PretrainedDirectory good;
  const auto hint = [&](const std::function<std::string(const std::string&)>& name,
                        const std::string& first) {
    directory_.tensors = good.tensors;
    for (TensorToWrite& tensor : directory_.tensors) tensor.name = name(tensor.name);
    directory_.write();
    const Error refusal = error_of([&] { open_pretrained_model(directory_.path()); });
    EXPECT_HAS(refusal.what(), "has no model.embed_tokens.weight");
    EXPECT_HAS(refusal.what(), "; it has " + first);
    return refusal.hint();
  };
  const std::string word = "language_model.";
  EXPECT_HAS(hint([&](const std::string& name) { return word + name; }, word + "model.embed_tokens.weight"),
             "its names have one word more, '" + word + "'");
  // Words of wrappers count only if all names have them.
  EXPECT_HAS(hint([&](const std::string& name) { return name == "lm_head.weight" ? name : "module." + name; },
                  "module.model.embed_tokens.weight"),
             "its names have one word more, 'module.'");
  EXPECT_HAS(hint(
                 [&](const std::string& name) {
                   return name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
                 },
                 "model.language_model.embed_tokens.weight"),
             "its names have one word more, 'language_model.'");
  // "_model." does not begin with a word.
  EXPECT_EQ(hint([&](const std::string& name) { return name.starts_with("model.") ? "model_" + name : name; },
                 "model_model.embed_tokens.weight"),
            "");
  EXPECT_HAS(hint([&](const std::string& name) { return name.starts_with("model.") ? name.substr(6) : name; },
                  "embed_tokens.weight"),
             "its names lack 'model.'");
  EXPECT_EQ(hint([&](const std::string& name) { return "x.y." + name + ".z"; }, "x.y.lm_head.weight.z"), "");
}

}  // namespace
}  // namespace ripstop
