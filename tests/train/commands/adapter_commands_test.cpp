// The program on a run of adapters, and on a config that makes one: evaluate, summarize, export, plan, check.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "tests/expect_has.h"
#include "tests/train/commands/random_run.h"
#include "tests/train/exchange/peft_directory.h"
#include "tests/train/exchange/pretrained_directory.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A safetensors file of float32 tensors, read as its specification says.
struct Float32File {
  explicit Float32File(const fs::path& path) : bytes(read_bytes(path)) {
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), 8);
    first = 8 + header_bytes;
    header = json::parse(bytes.substr(8, header_bytes));
    for (const auto& [name, tensor] : header.items())
      if (name != "__metadata__") shapes[name] = tensor["shape"].get<std::vector<int64_t>>();
  }
  std::vector<float> values(const std::string& name) const {
    const auto place = header[name]["data_offsets"].get<std::array<size_t, 2>>();
    EXPECT_EQ(header[name]["dtype"], "F32");
    std::vector<float> elements((place[1] - place[0]) / 4);
    std::memcpy(elements.data(), bytes.data() + first + place[0], place[1] - place[0]);
    return elements;
  }

  std::string bytes;
  size_t first = 0;
  json header;
  std::map<std::string, std::vector<int64_t>> shapes;
};

class AdapterCommands : public RandomRun {
 protected:
  void SetUp() override {
    RandomRun::SetUp();
    model_.resize(400, 256);
    model_.fill("F32");
    model_.write();
    write("c.toml", "[run]\ndirectory = \"" + file("adapted") +
                        "\"\ndevice = \"cpu\"\n[model]\npretrained = \"" + model_.path().string() +
                        "\"\n[data]\ndirectory = \"" + file("data") +
                        "\"\nsequence_length = 128\n[train]\nsteps = 2\nglobal_batch_sequences = 2\n" +
                        "[optimizer]\nlearning_rate = 1e-2\n[precision]\ncompute = \"float32\"\n" +
                        "[lora]\nrank = 2\nalpha = 4\n");
  }
  /// The base that an export for PEFT names.
  std::string base_in(const std::string& to) {
    return json::parse(read_bytes(scratch_ / to / "adapter_config.json"))["base_model_name_or_path"]
        .get<std::string>();
  }
  static constexpr const char* kAllTargets =
      " lora.targets='[\"q_proj\",\"k_proj\",\"v_proj\",\"o_proj\",\"gate_proj\",\"up_proj\",\"down_proj\"]'";
  static ProgramRun done(const std::string& arguments) { return expect_success(run_program(arguments)); }
  static void expect_refused(const std::string& arguments, int code, const std::string& what) {
    const std::string text = json(what).dump();  // with the escapes of the FATAL line
    expect_exit(run_program(arguments), code, text.substr(1, text.size() - 2));
  }

  PretrainedDirectory model_;
};

// The verbs that need the base. With the wrong base each would compute something else.
TEST_F(AdapterCommands, ABaseThatHasMovedIsGivenByBase) {
  done("train " + file("c.toml"));
  const std::string documents = write("documents.jsonl", "{\"document\": \"the harbour\"}\n");
  struct Verb {
    std::string words;
    std::function<std::string(const ProgramRun&)> result;
  };
  int count = 0;
  const auto verbs = [&] {
    const std::string to = file("out" + std::to_string(count++));
    return std::vector<Verb>{
        {"evaluate " + file("adapted") + " --limit 2 --max-new-tokens 4 --json --output " + to + "scores",
         [](const ProgramRun& run) { return json::parse(run.out)["loss"].dump(); }},
        {"summarize " + file("adapted") + " --max-new-tokens 4 --input " + documents,
         [](const ProgramRun& run) { return run.out; }},
        {"checkpoint export " + file("adapted") + " " + to,
         [to](const ProgramRun&) { return read_bytes(fs::path(to) / "model.safetensors"); }}};
  };
  std::vector<std::string> expected;
  for (const Verb& verb : verbs()) expected.push_back(verb.result(done(verb.words)));

  const fs::path moved = scratch_ / "moved";
  fs::rename(model_.path(), moved);
  for (const Verb& verb : verbs()) {
    const ProgramRun refused = run_program(verb.words);
    expect_exit(refused, 65,
                "the model that the adapters were trained with is not there: " + model_.path().string() +
                    ": no such directory");
    EXPECT_HAS(refused.err, "--base");
    EXPECT_EQ(refused.out, "");
  }
  const std::vector<Verb> given = verbs();
  for (size_t v = 0; v < given.size(); ++v)
    EXPECT_EQ(given[v].result(done(given[v].words + " --base " + moved.string())), expected[v])
        << given[v].words;

  // --base is the only place searched: a wrong model there is refused.
  fs::copy(moved, model_.path(), fs::copy_options::recursive);
  PretrainedDirectory other;
  other.resize(400, 256);
  other.fill("F32");
  char& last = other.tensor("lm_head.weight").values.back();
  last = static_cast<char>(last ^ 1);
  other.write();
  for (const Verb& verb : verbs())
    expect_refused(verb.words + " --base " + other.path().string(), 65,
                   other.path().string() + ": has other weights");
}

TEST_F(AdapterCommands, OnlyAdaptersHaveABase) {
  const std::string base = " --base " + model_.path().string();
  expect_refused("evaluate " + run() + base, 64, "has no adapters, which alone have a base");
  expect_refused("checkpoint export " + run() + " " + file("out") + base, 64, "has no adapters");
  expect_refused("summarize " + model_.path().string() + base, 64,
                 model_.path().string() + " has no adapters, which alone have a base");
}

TEST_F(AdapterCommands, AnExportForPeftDoesWithoutTheBase) {
  done("train " + file("c.toml"));
  const auto exported = [&](const std::string& to, const std::string& more) {
    EXPECT_HAS(done("checkpoint export --format peft " + file("adapted") + " " + file(to) + more).out,
               "AutoPeftModelForCausalLM.from_pretrained");
    return read_bytes(scratch_ / to / "adapter_model.safetensors");
  };
  const std::string expected = exported("with", "");
  EXPECT_EQ(base_in("with"), model_.path().string());
  // The base has no tokenizer. README.md makes the ids with the tokenizer of the run and the prompt of the
  // training.
  EXPECT_EQ(read_bytes(scratch_ / "with/tokenizer.model"), read_bytes(scratch_ / "data/tokenizer.model"));
  EXPECT_TRUE(fs::exists(scratch_ / "with/tokenizer.json"));
  const std::string card = read_bytes(scratch_ / "with/README.md");
  EXPECT_HAS(card, "import torch\nfrom peft import PeftModel\n");
  EXPECT_HAS(card, "tokenizer = AutoTokenizer.from_pretrained(\".\")\n");
  EXPECT_HAS(card, "def prompt_ids(document):");
  fs::rename(model_.path(), scratch_ / "moved");
  EXPECT_EQ(exported("without", ""), expected);
  EXPECT_EQ(base_in("without"), model_.path().string());
  EXPECT_HAS(done("plan " + file("c.toml") + " train.steps=3 model.pretrained=" + run()).out,
             "note: train will refuse to go on with " + file("adapted") +
                 ": the model that the adapters were trained with is not there: " + run() + ": ");
  EXPECT_EQ(exported("named", " --base " + file("moved")), expected);
  EXPECT_EQ(base_in("named"), file("moved"));
  expect_refused("checkpoint export --format peft " + file("adapted") + " " + file("no") + " --base " + run(),
                 65, "has other weights");
  EXPECT_FALSE(fs::exists(scratch_ / "no"));
}

// peft cannot read a checkpoint of ripstop, but an export of it.
TEST_F(AdapterCommands, ABaseOfRipstopIsExportedForPeft) {
  const std::string base = run() + "/checkpoints/step_00000007",
                    peft = "checkpoint export --format peft " + file("adapted") + " ";
  done("train " + file("c.toml") +
       " data.sequence_length=256 precision.compute=bfloat16 model.pretrained=" + run());
  // float32 where the processor has no products of bfloat16.
  const std::string held =
      json::parse(done("checkpoint inspect --json " + file("adapted")).out)["adapters"]["base"]["dtype"];
  const ProgramRun first = done(peft + file("first"));
  EXPECT_EQ(base_in("first"), base);
  EXPECT_HAS(first.err, "note: the base " + base + " is a checkpoint of ripstop, which peft does not read");
  const std::string command = "ripstop checkpoint export --dtype " + held + " " + base + " exported-base\n";
  EXPECT_HAS(first.out, "next: " + command);
  EXPECT_EQ(first.out.find("AutoPeft"), std::string::npos);
  const std::string card = read_bytes(scratch_ / "first/README.md");
  EXPECT_HAS(card, command);
  EXPECT_HAS(card, "base = \"exported-base\"");
  EXPECT_HAS(card, "from_pretrained(base, dtype=\"" + held + "\")");
  for (const char* dtype : {"float32", "bfloat16"}) {
    const std::string to = dtype;
    done("checkpoint export --dtype " + to + " " + base + " " + file(to));
    const ProgramRun named = done(peft + file("of_" + to) + " --base " + file(to));
    EXPECT_EQ(base_in("of_" + to), file(to));
    EXPECT_HAS(named.out, "AutoPeftModelForCausalLM.from_pretrained");
    EXPECT_EQ(named.err.find("note:"), std::string::npos) << named.err;
    EXPECT_HAS(read_bytes(scratch_ / ("of_" + to) / "README.md"), "base = \"" + file(to) + "\"");
  }
  // An export of another model of the same sizes.
  done("train " + file("c.toml") + " run.directory=" + file("other") + " model.pretrained=" + run() +
       " lora.rank=0");
  done("checkpoint export --dtype float32 " + file("other") + " " + file("other_float32"));
  const std::string refused = "the model that the adapters were trained with is not there: ";
  expect_refused(peft + file("no") + " --base " + file("other_float32"), 65,
                 refused + file("other_float32") + ": has other weights");
  // Without the base nothing shows which model an export came from.
  fs::rename(run(), scratch_ / "moved");
  expect_refused(peft + file("no") + " --base " + file("float32"), 65,
                 refused + file("float32") +
                     ": has other weights; whether it is an export of the base cannot be told: " + base +
                     ": no such directory");
  EXPECT_FALSE(fs::exists(scratch_ / "no"));
  // A base that is gone was a checkpoint if its name is that of a step directory.
  EXPECT_HAS(done(peft + file("gone")).out, "next: " + command);
}

TEST_F(AdapterCommands, AMergedExportSaysWhatItRounds) {
  done("train " + file("c.toml") + " precision.compute=bfloat16");
  const std::string verb = "checkpoint export " + file("adapted") + " ", rounded = "rounded to bfloat16";
  EXPECT_HAS(done(verb + file("short")).err, rounded);
  EXPECT_EQ(done(verb + file("asked") + " --dtype bfloat16").err.find(rounded), std::string::npos);
  EXPECT_EQ(done(verb + file("long") + " --dtype float32").err.find(rounded), std::string::npos);
  EXPECT_EQ(read_bytes(scratch_ / "short/model.safetensors"),
            read_bytes(scratch_ / "asked/model.safetensors"));
}

// Computed from the files alone, in Hugging Face's order of rows.
TEST_F(AdapterCommands, AMergedExportIsTheSumOfTheFiles) {
  done("train " + file("c.toml") + kAllTargets);
  done("checkpoint export --dtype float32 " + file("adapted") + " " + file("merged"));
  done("checkpoint export --format peft " + file("adapted") + " " + file("peft"));
  const Float32File merged(scratch_ / "merged/model.safetensors"), base(model_.path() / "model.safetensors"),
      adapters(scratch_ / "peft/adapter_model.safetensors");
  int64_t checked = 0;
  for (const auto& [name, shape] : base.shapes) {
    const std::vector<float> was = base.values(name), is = merged.values(name);
    const std::string adapter = "base_model.model." + name.substr(0, name.rfind(".weight"));
    if (!adapters.shapes.contains(adapter + ".lora_A.weight")) {
      EXPECT_EQ(is, was) << name;
      continue;
    }
    const std::vector<float> a = adapters.values(adapter + ".lora_A.weight"),
                             b = adapters.values(adapter + ".lora_B.weight");
    const int64_t columns = shape[1], rank = 2;
    double most = 0;
    for (size_t i = 0; i < was.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / columns, column = static_cast<int64_t>(i) % columns;
      double sum = 0;
      for (int64_t r = 0; r < rank; ++r)
        sum += double{b[static_cast<size_t>(row * rank + r)]} * a[static_cast<size_t>(r * columns + column)];
      const double added = 4.0 / 2.0 * sum;  // alpha / rank
      most = std::max(most, std::abs(added));
      ASSERT_NEAR(is[i], was[i] + added, 1e-7 * std::max(1.0, std::abs(was[i] + added))) << name << " " << i;
    }
    EXPECT_GT(most, 1e-5) << name;
    ++checked;
  }
  EXPECT_EQ(checked, 2 * 7);
}

// A validation computes with the adapters beside the frozen weights and without dropout; `evaluate` merges.
TEST_F(AdapterCommands, EvaluateAgreesWithTheValidationOfTheRun) {
  done("train " + file("c.toml") + kAllTargets + " lora.dropout=0.5 train.steps=6 train.validate_every=6");
  json validation;
  for (const json& line : lines_of(read_bytes(scratch_ / "adapted/metrics.jsonl")))
    if (line["event"] == "validation") validation = line;
  const auto loss_of = [&](const std::string& model, const std::string& to) {
    return json::parse(done("evaluate " + model +
                            " --split validation --limit 1000 --max-new-tokens 1 --json --data " +
                            file("data") + " --output " + file(to))
                           .out)["loss"]
        .get<double>();
  };
  const double loss = loss_of(file("adapted"), "adapted_scores");
  EXPECT_NEAR(loss, validation["loss"].get<double>(), 2e-6 * loss);
  EXPECT_GT(std::abs(loss_of(model_.path().string(), "frozen_scores") - loss), 1e-3 * loss);
}

TEST_F(AdapterCommands, CheckComparesTheAdapters) {
  const std::string overrides = " lora.dropout=0.25 lora.targets='[\"q_proj\",\"up_proj\"]'";
  const json report = json::parse(done("check --small --json " + file("c.toml") + overrides).out);
  EXPECT_EQ(report["model"]["adapters"], "rank 2, alpha 2, dropout 0, of q_proj, up_proj");
  std::set<std::string> parameters;
  for (const json& value : report["values"])
    if (value.contains("parameter")) parameters.insert(value["parameter"].get<std::string>());
  EXPECT_EQ(parameters.size(), 8u);
  EXPECT_TRUE(parameters.contains("layers.1.feed_forward.w3.lora_B.weight"));
  EXPECT_HAS(done("check --small " + file("c.toml") + overrides).out,
             "256 pieces; frozen, with adapters of rank 2, alpha 2");
}

// plan and check refuse a wrong lora.adapter as train does, until the run has begun.
TEST_F(AdapterCommands, AdaptersToBeginWithAreLookedAtBeforeTheRun) {
  const std::string config = file("c.toml");
  done("train " + config + " run.directory=" + file("first"));
  done("checkpoint export --format peft " + file("first") + " " + file("start"));
  const std::string start = " lora.adapter=" + file("start");
  const std::vector<std::string> all = {"plan " + config, "plan " + config + " --search --device-memory 8GiB",
                                        "check --small " + config, "train " + config};
  const auto refused_by_all = [&](const std::string& overrides, int code, const std::string& what) {
    for (const std::string& verb : all) expect_refused(verb + overrides, code, what);
  };
  refused_by_all(
      start + " lora.alpha=3", 64,
      "has rank = 2, alpha = 4, targets = [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"], rslora = "
      "false, [lora] says rank = 2, alpha = 3");
  refused_by_all(" lora.adapter=" + file("nothing"), 64,
                 "lora.adapter = \"" + file("nothing") + "\": no such directory");
  refused_by_all(" lora.adapter=" + config, 64, config + "\": is not a directory");
  refused_by_all(" lora.adapter=" + file("data"), 65, "has no adapter_config.json");
  refused_by_all(" lora.adapter=" + file("first"), 64, file("first") + "\" is a run, and adapters of PEFT");
  expect_refused("checkpoint inspect " + file("start"), 64, "has adapters of PEFT, and no model or run");
  EXPECT_HAS(done("train " + config + start + " run.directory=" + file("second")).out,
             "frozen; the adapters begin as those of " + file("start"));
  // plan says beforehand what train will refuse in a run that has begun.
  EXPECT_HAS(done("plan " + config + " run.directory=" + file("first") + " lora.rank=1").out,
             "note: train will refuse to go on with " + file("first") + ": ");
  EXPECT_HAS(
      done("plan --search --ntasks-per-node 1 " + config + " run.directory=" + file("first") + " lora.rank=1")
          .out,
      "note: train will refuse to go on with " + file("first") + ": ");
  // Adapters of a model with other sizes.
  PretrainedDirectory other;
  other.resize(400, 256);
  other.config["num_hidden_layers"] = 1;
  const std::string second = "model.layers.1.";
  std::erase_if(other.tensors, [&](const auto& tensor) { return tensor.name.starts_with(second); });
  other.fill("F32");
  other.write();
  refused_by_all(start + " model.pretrained=" + other.path().string(), 65,
                 "has tensors that its targets do not have: ");
  EXPECT_FALSE(fs::exists(scratch_ / "adapted"));
  for (const std::string& verb : all) done(verb + start);
  // The run has begun, so it needs lora.adapter no more.
  fs::remove_all(scratch_ / "start");
  for (const std::string& verb : all) done(verb + start);
}

}  // namespace
}  // namespace ripstop
