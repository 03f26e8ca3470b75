// The values in the golden files of tests/golden/VERSION, with which golden_formats_test.cpp writes and
// compares them. A released version's values never change.
#pragma once
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "data/dataset/token_dataset_writer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "train/checkpoint/takeovers.h"
#include "train/config/run_config.h"
#include "train/evaluate/evaluation_directory.h"
#include "train/exchange/hugging_face/generation_file.h"
#include "train/machine/rates.h"
#include "train/report/metrics.h"

namespace ripstop::golden {

// ---- data sets

inline constexpr const char* kTemplate = "{document}\n\nTL;DR:";

inline TokenDatasetHeader pairs_header(bool with_text) {
  TokenDatasetHeader header;
  header.vocabulary_size = 400;
  header.tokenizer_sha256 = std::string(64, 'a');
  header.prompt_template = kTemplate;
  header.separator = "\n\nTL;DR:";
  header.with_text = with_text;
  return header;
}

/// BOS, a document of `number` + 3 tokens, a separator of two, a summary of two, EOS.
inline TokenExample pair(int32_t number) {
  TokenExample example;
  example.tokens = {1};
  for (int32_t i = 0; i < number + 3; ++i) example.tokens.push_back(100 + 10 * number + i);
  const auto document_end = static_cast<int32_t>(example.tokens.size());
  for (const int32_t token : {20, 21, 300 + number, 399, 2}) example.tokens.push_back(token);
  example.spans = {{document_end + 2, document_end + 5, 1, document_end}};
  return example;
}
inline std::vector<ExampleText> pair_texts() {
  return {{"a1", "A storm closed the harbour.", "Harbour closed."},
          {"b 2", "Le pont est ferm\u00e9.\nIt opens on \"Monday\".", "Pont ferm\u00e9."},
          {"3", "Words.", "W"}};
}

/// Ids above 65,535 take four bytes each.
inline TokenDatasetHeader conversations_header() {
  return {.kind = ExampleKind::kConversation,
          .vocabulary_size = 70000,
          .tokenizer_sha256 = std::string(64, 'b'),
          .begin_tokens = 0,
          .end_token = 69999,
          .reads_special_tokens = true,
          .prompt_template = "{document}",
          .separator = "",
          .chat_template = "llama3.2",
          .chat_date = "26 Jul 2024",
          .why_only_last = "the template drops thoughts",
          .with_text = true};
}
inline TokenExample conversation() {
  return {.tokens = {5, 6, 7, 65536, 65537, 10, 11, 12, 13, 14, 15, 16, 69999},
          .spans = {{7, 9, 4, 6}, {11, 13, 9, 10}},
          .turn_begin = {3, 6, 9, 10},
          .why_only_last = "the template drops thoughts"};
}
inline ExampleText conversation_text() {
  return {"c1", "", "",
          R"([{"role":"user","content":"Why?"},{"role":"assistant","content":"So.","weight":0}])"};
}

// ---- a run

/// A key of each section, and each kind of value.
inline const std::vector<std::string> kConfig = {"run.directory=\"runs/golden\"",
                                                 "run.seed=7",
                                                 "run.device=\"cpu\"",
                                                 "run.deadline_seconds=90",
                                                 "model.hidden_size=4",
                                                 "model.intermediate_size=8",
                                                 "model.num_hidden_layers=1",
                                                 "model.num_attention_heads=2",
                                                 "model.num_key_value_heads=1",
                                                 "model.vocab_size=11",
                                                 "model.max_position_embeddings=8",
                                                 "mesh.pipeline=2",
                                                 "mesh.pipeline_layers=[1, 0]",
                                                 "mesh.fsdp=1",
                                                 "data.directories=[\"data/a\", \"data/b\"]",
                                                 "data.weights=[3, 1]",
                                                 "data.sequence_length=8",
                                                 "train.steps=40",
                                                 "train.global_batch_sequences=4",
                                                 "train.recompute=\"full\"",
                                                 "train.validate_every=3",
                                                 "train.max_grad_norm=0.5",
                                                 "optimizer.learning_rate=1e-3",
                                                 "optimizer.betas=[0.9, 0.99]",
                                                 "optimizer.moments=\"bfloat16\"",
                                                 "schedule.kind=\"wsd\"",
                                                 "schedule.decay=\"1-sqrt\"",
                                                 "schedule.decay_ratio=0.25",
                                                 "precision.compute=\"float32\"",
                                                 "checkpoint.every_steps=7",
                                                 "checkpoint.keep_best=\"rougeL\"",
                                                 "generation.num_beams=4",
                                                 "generation.early_stopping=\"never\"",
                                                 "generation.eos_token_id=[2, 5]",
                                                 "generation.validate_examples=3",
                                                 "log.tensorboard=true"};

inline RunConfig config() {
  return parse_run_config("", "golden", kConfig);
}

inline CheckpointState state() {
  CheckpointState state = state_at(7, tiny_model());
  state.updates = 6;
  state.best = BestSoFar{"rougeL", 0.25, 3};
  state.config = to_toml(config());
  return state;
}
inline CheckpointState adapters_state() {
  CheckpointState state = golden::state();
  state.adapted = {.lora = {.rank = 2,
                            .alpha = 2.5,
                            .dropout = 0.125,
                            .rslora = true,
                            .targets = {true, false, false, true, false, false, true}},
                   .directory = "models/tiny",
                   .hash = "fedcba9876543210fedcba9876543210",
                   .samples = "0123456789abcdef0123456789abcdef",
                   .dtype = "bfloat16"};
  return state;
}

inline std::vector<Takeover> takeovers() {
  return {
      {.number = 1, .step = 0, .owner = "process 4711 on node7", .job = "42", .restart = 0, .time = 1.5e9},
      {.number = 2,
       .step = 7,
       .owner = "process 5 on node8",
       .job = "42",
       .restart = 1,
       .time = 1.5e9 + 0.25,
       .changes = {{.key = "optimizer.learning_rate", .old_value = "0.002", .new_value = "0.001"}}}};
}

/// The values of LOCK, in the place of those of the machine that writes the file.
inline std::map<std::string, std::string> lock_facts() {
  return {{"boot", "00000000-0000-0000-0000-000000000001"},
          {"directory", "runs/golden"},
          {"host", "node7"},
          {"inode", "1234"},
          {"job", "42"},
          {"namespace", "pid:[4026531836]"},
          {"nonce", "0123456789abcdef"},
          {"pid", "4711"},
          {"restart", "1"},
          {"started", "5000"}};
}

inline StartEvent start_event() {
  StartEvent start;
  start.steps = 40;
  start.argv = {"ripstop", "train", "golden.toml"};
  start.version = "0.2.0";
  start.git_commit = "abc";
  start.mesh.pipeline = 2;
  start.hosts = {"node7", "node8"};
  start.recompute = "full";
  start.micro_batch_sequences = 2;
  start.micro_batches = 2;
  start.data.kind = "summary";
  start.data.examples = 3;
  start.data.cut_tokens = 5;
  start.data.epoch_tokens = 60;
  start.checkpoint_bytes = 9000;
  start.takeover = 1;
  start.deadline = 1.6e9;
  start.deadline_source = "squeue";
  start.parameters = start.trained_parameters = 300;
  start.flops_per_token = 1800.5;
  start.peak_flops_per_second = 1e11 / 3;
  start.peak_flops_source = "measured: best of 3 rounds";
  start.plan = {.memory = {{1, 2, 3, 4, 5, 6, 7}}, .traffic_per_step = {7, 8, 9}};
  start.startup = StartupSeconds{.program = 0.5, .mpi = 0.25, .total = 0.75};
  start.continued_from = "runs/before/checkpoints/step_00000002";
  start.changes = takeovers().back().changes;
  start.account = RunAccount{.node_hours = 0.5, .tokens = 0, .kwh = 0.125, .gpu_kwh = {}};
  start.time = 1.5e9;
  return start;
}
inline StepMetrics step_event() {
  StepMetrics step;
  step.step = 7;
  step.tokens = 32;
  step.tokens_seen = 7000;
  step.loss = 0.1 + 0.2;
  step.grad_norm = std::nextafter(0.41, 1.0);
  step.learning_rate = 1e-3;
  step.step_seconds = 0.5;
  step.tokens_per_second = 64;
  step.model_flops_utilization = 0.412;
  step.peak_memory_bytes = int64_t{61} << 30;
  step.communication_exposed_seconds.pipeline = 0.125;
  step.sets = {{24, 4200, 0.25}, {8, 2800, NAN}};
  step.data_wait_seconds = 5e-324;
  step.save_wait_seconds = 0.0625;
  step.startup = start_event().startup;
  step.startup->first_step = 0.5;
  step.account = RunAccount{.node_hours = 0.625, .tokens = 7000, .kwh = {}, .gpu_kwh = {}};
  step.time = 1.5e9 + 1;
  return step;
}
inline ValidationEvent validation_event() {
  ValidationEvent validation;
  validation.step = 3;
  validation.loss = 2.25;
  validation.target_count = 12;
  validation.seconds = 0.75;
  validation.best = true;
  validation.rouge1 = 0.5;
  validation.rouge2 = 0.125;
  validation.rougeL = 0.25;
  validation.samples = {{"a1", "Harbour \u00e9.", "Harbour closed."}};
  validation.sets = {{2.25, 12, 0.5, 0.125, 0.25}, {3, 4, {}, {}, {}}};
  validation.time = 1.5e9 + 0.5;
  return validation;
}

/// An event of each kind.
inline std::vector<MetricsEvent> events() {
  HostsEvent hosts;
  hosts.step = 7;
  hosts.steps = 5;
  hosts.hosts = {"node7", "node8"};
  hosts.compute_seconds = {0.5123, 12};
  hosts.wait_seconds = {0, 0.25};
  hosts.slow = {{1, "node8", 0.52}};
  hosts.exclude = "--exclude=node8";
  hosts.time = 1.5e9 + 1;
  EndEvent end;
  end.step = 7;
  end.exit_code = 75;
  end.reason = EndReason::kTimeLimit;
  end.planned = start_event().plan;
  end.measured = {{1, 2, 3, 4, 5, 6, 8}, {7, 8, 10}};
  end.resident_before_bytes = 1000;
  end.resident_peak_bytes = 2000;
  end.seconds = 4.5;
  end.account = RunAccount{.node_hours = 0.75, .tokens = 7000, .kwh = 0.25, .gpu_kwh = 0.0625};
  end.time = 1.5e9 + 4;
  return {start_event(),
          validation_event(),
          step_event(),
          hosts,
          SaveEvent{.step = 7, .state = SaveState::kBegun, .waited_seconds = 0.25, .time = 1.5e9 + 2},
          CheckpointEvent{7, "runs/golden/checkpoints/step_00000007", 9000, 1.5, 0.5, 1.5e9 + 3},
          WarningEvent{7, "the job ends later", 1.6e9 + 60, "squeue", 1.5e9 + 3},
          end};
}

// ---- an evaluation, an export, rates

inline std::vector<Prediction> predictions() {
  std::vector<Prediction> all;
  for (const ExampleText& text : pair_texts())
    all.push_back({text.id, text.summary, text.summary, text.document, all.empty()});
  all.back().summary = "";
  return all;
}
inline EvaluationSettings evaluation_settings() {
  EvaluationSettings settings;
  settings.step = 7;
  settings.split = "test";
  settings.examples = 3;
  settings.weights = std::string(32, 'c');
  settings.data = std::string(32, 'd');
  settings.compute = "float32";
  settings.context = 8;
  settings.generation = config().generation;
  return settings;
}

inline ExportedPrompt prompt() {
  return {.prompt_template = kTemplate, .context = 96, .has_turns = false};
}
inline TokenizerFiles tokenizer_files() {
  return {.path = "tokenizer.json",
          .carried = {{kTokenizerJsonFile, "{}"}},
          .choice = {.eos_token = "<|im_end|>",
                     .reads_special_tokens = true,
                     .chat_template = "chatml",
                     .chat_date = "26 Jul 2024"},
          .questions =
              TokenizerChoice{.eos_token = "</s>", .reads_special_tokens = false, .chat_template = "zephyr"}};
}

inline Rates rates() {
  Rates rates;
  rates.device = "cpu";
  rates.model = "a processor";
  rates.hosts = {"node7", "node8"};
  rates.ranks_per_node = 4;
  rates.threads = 8;
  rates.memory_bytes_per_second = 1.5e10;
  rates.inside_node = LinkRate{2e-6, 6e9, 0.25};
  rates.between_nodes = LinkRate{3e-6, 1e9, 0.75};
  rates.watts_per_rank = 41.5;
  rates.kernels = {
      {.kernel = "linear", .dtype = "float32", .rows = 2, .columns = 3, .inner = 4, .per_second = 7e10}};
  return rates;
}

}  // namespace ripstop::golden
