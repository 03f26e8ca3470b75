#include "train/config/config_keys.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <type_traits>

namespace ripstop {
namespace {

template <class T>
Field field_at(T* value) {
  if constexpr (std::is_same_v<T, decltype(LoraConfig::targets)>) {
    return WordsField{kLoraTargets, *value};
  } else if constexpr (std::is_enum_v<T>) {
    return ChoiceField{kWords<T>, value,
                       [](const void* v) { return static_cast<int>(*static_cast<const T*>(v)); },
                       [](void* v, int index) { *static_cast<T*>(v) = static_cast<T>(index); }};
  } else {
    return value;
  }
}

// Limits far above every real run: typing errors are refused before arithmetic overflows.
constexpr double kManySteps = 1e12;
constexpr double kManyRanks = 1 << 20;
constexpr double kManyParts = 1 << 10;  // so that a product of all axes fits 64 bits
constexpr double kLargestSeed = 9.2e18;
// Limit of a sequence's tokens: planning takes time for each chunk of the logits.
constexpr double kManyTokens = 1 << 24;
// Limit of a step's sequences, far above any batch in use, because memory holds a list of them.
constexpr double kManySequences = 1 << 20;
// AdamW computes in float32: a smaller epsilon is 0, or denormal, which a device may round to 0.
constexpr double kSmallestFloat = std::numeric_limits<float>::min();

// Starts a row: section_ and name_ are also the names of the members in RunConfig.
#define RIPSTOP_KEY(section_, name_) \
  .section = #section_, .name = #name_, .field = [](RunConfig& c) { return field_at(&c.section_.name_); }

// Starts the row of a numeric member of ModelConfig, with its range.
#define RIPSTOP_SIZE(name_) RIPSTOP_KEY(model, name_), .range = model_range(#name_)

constexpr ValueRange model_range(std::string_view field) {
  ValueRange found;
  for_each_field(ModelConfig{}, [&](std::string_view name, const auto&, ValueRange range = {}) {
    if (name == field) found = range;
  });
  return found;
}

// clang-format off
const ConfigKey kKeys[] = {
    {RIPSTOP_KEY(run, directory), .presence = Presence::kRequired, .may_change_on_resume = true,
     .doc = "The run writes all its files here. A new run needs a new directory.",
     .elsewhere = "output_dir job.dump_folder | out_dir save_dir run_dir run_name"},
    {RIPSTOP_KEY(run, continue_from), .presence = Presence::kOptional, .may_change_on_resume = true,
     .doc = "Begin this new run with the weights, moments, step and place in the data of the newest checkpoint of that run, or of the checkpoint `RUN/checkpoints/step_N`. Steps, rate and schedule may differ, data and model not.",
     .elsewhere = "| continue_from_checkpoint ckpt_path load_checkpoint"},
    {RIPSTOP_KEY(run, seed), .range = {0, kLargestSeed},
     .doc = "Seed of the initial weights, and of the sample order if `data.shuffle_seed` is not given.",
     .elsewhere = "seed debug.seed | random_seed"},
    {RIPSTOP_KEY(run, device),
     .doc = "`auto` takes the GPU if the build and the machine have one.",
     .elsewhere = "use_cpu | accelerator no_cuda backend device_map"},
    {RIPSTOP_KEY(run, deterministic),
     .doc = "Repeat a run bit by bit on GPUs; somewhat slower. The CPU always repeats.",
     .elsewhere = "full_determinism debug.deterministic"},
    {RIPSTOP_KEY(run, profile_steps), .may_change_on_resume = true, .default_text = "`\"\"`",
     .doc = "First and last step of which each rank writes a [trace](debugging.md#where-the-time-goes), and which Nsight profiles on GPUs, as in `\"10-12\"`; empty: none.",
     .elsewhere = "profiling.enable_profiling | profile profile_freq"},
    {RIPSTOP_KEY(run, deadline_seconds), .range = {5, 1e6}, .may_change_on_resume = true, .none_is_auto = true, .unit = "seconds",
     .doc = "How long a collective may wait for a rank, and a save for a disk that does nothing, before the run ends with 76 and names the rank; `auto`: 3 times what a step takes, at least 60 s; 600 s at the start, in saves and while summaries are written.",
     .elsewhere = "ddp_timeout comm.train_timeout_seconds | timeout nccl_timeout dist_timeout "
                  "comm.init_timeout_seconds"},

    {RIPSTOP_KEY(model, pretrained), .presence = Presence::kOptional,
     .doc = "Start from the weights of this Hugging Face directory, run or checkpoint, with its sizes.",
     .elsewhere = "model_name_or_path checkpoint.initial_load_path | pretrained_model_name_or_path base_model "
                  "init_from"},
    {RIPSTOP_KEY(model, resize_vocabulary),
     .doc = "Rows for tokens of the data set that `model.pretrained` does not have begin as the mean of the others, or as a normal number with the mean and variance of the others, by column; `none`: such a data set is refused.",
     .elsewhere = "resize_token_embeddings | resize_vocab resize_embeddings"},
    {RIPSTOP_KEY(model, preset), .presence = Presence::kOptional,
     .doc = "`debug`, `15m`, `110m`, `smollm2-135m`, `qwen2.5-0.5b`, `qwen3-0.6b`, `tinyllama-1.1b`, `llama3.2-1b`, "
            "`llama2-7b`, `llama3.1-8b`, `llama2-13b` or `llama2-70b`. A size beside it wins.",
     .elsewhere = "model.flavor | model.name model_size config_name model_type"},
    {RIPSTOP_SIZE(hidden_size), .default_text = "preset's",
     .doc = "Width of the residual stream.",
     .elsewhere = "hidden_size dim | d_model n_embd embed_dim embedding_dim"},
    {RIPSTOP_SIZE(intermediate_size), .default_text = "preset's",
     .doc = "Width of the feed-forward layer.",
     .elsewhere = "intermediate_size hidden_dim | ffn_dim d_ff ffn_hidden_size multiple_of ffn_dim_multiplier"},
    {RIPSTOP_SIZE(num_hidden_layers), .default_text = "preset's",
     .doc = "Number of blocks.",
     .elsewhere = "num_hidden_layers n_layers | num_layers layers n_layer"},
    {RIPSTOP_SIZE(num_attention_heads), .default_text = "preset's",
     .doc = "Number of query heads; must divide `hidden_size` unless `head_dim` is given.",
     .elsewhere = "num_attention_heads n_heads | num_heads heads n_head"},
    {RIPSTOP_SIZE(num_key_value_heads), .default_text = "preset's, else the query heads",
     .doc = "Number of key-value heads; must divide the number of query heads.",
     .elsewhere = "num_key_value_heads n_kv_heads | kv_heads num_query_groups"},
    {RIPSTOP_SIZE(vocab_size), .default_text = "preset's, else the data set's",
     .doc = "Number of token ids; at least as many as the data set's tokenizer has.",
     .elsewhere = "vocab_size | vocabulary_size n_vocab"},
    {RIPSTOP_SIZE(max_position_embeddings), .default_text = "preset's, else `data.sequence_length`", .unit = "tokens",
     .doc = "The longest sequence that the model is made for.",
     .elsewhere = "max_position_embeddings max_seq_len | n_ctx n_positions block_size context_length"},
    {RIPSTOP_SIZE(rms_norm_eps),
     .doc = "Added to the mean square in RMSNorm.",
     .elsewhere = "rms_norm_eps norm_eps | layer_norm_eps"},
    {RIPSTOP_SIZE(rope_theta),
     .doc = "Base of the rotary embedding.",
     .elsewhere = "rope_theta | rotary_base rope_base"},
    {RIPSTOP_KEY(model, tie_word_embeddings), .default_text = "preset's, else `false`",
     .doc = "The head uses the embedding's weight.",
     .elsewhere = "tie_word_embeddings enable_weight_tying | tied tie_embeddings"},
    {RIPSTOP_SIZE(initializer_range),
     .doc = "Standard deviation of the initial weights; 0: 1 / sqrt(`hidden_size`).",
     .elsewhere = "initializer_range | init_std initializer_std"},
    {RIPSTOP_SIZE(head_dim), .default_text = "preset's, else `hidden_size` / `num_attention_heads`",
     .doc = "Size of a head; 0: `hidden_size` / `num_attention_heads`.",
     .elsewhere = "head_dim | head_size kv_channels"},
    {RIPSTOP_KEY(model, attention_bias), .default_text = "preset's, else `\"none\"`",
     .doc = "The linear layers of attention that add a bias: none, queries, keys and values, or the output too.",
     .elsewhere = "attention_bias | qkv_bias add_qkv_bias"},
    {RIPSTOP_KEY(model, qk_norm), .default_text = "preset's, else `false`",
     .doc = "RMSNorm of each head of queries and keys, before the rotation.",
     .elsewhere = "| qk_layernorm use_qk_norm"},
    {RIPSTOP_SIZE(sliding_window), .unit = "tokens",
     .doc = "Positions that a position sees, itself among them; 0: all before it. At least `data.sequence_length`: attention to a part of a sequence is not in this version.",
     .elsewhere = "sliding_window | window_size attention_window"},
    {RIPSTOP_KEY(model, rope_type), .default_text = "preset's, else `\"default\"`",
     .doc = "How the frequencies of the rotary embedding are scaled.",
     .elsewhere = "rope_type"},
    {RIPSTOP_SIZE(rope_factor), .default_text = "preset's, else `1.0`",
     .doc = "`linear`: all frequencies are divided by it; `llama3`: the low ones.",
     .elsewhere = "factor | rope_scaling_factor"},
    {RIPSTOP_SIZE(rope_low_freq_factor),
     .doc = "`llama3`: a frequency that turns less often within `rope_original_max_position_embeddings` is low.",
     .elsewhere = "low_freq_factor"},
    {RIPSTOP_SIZE(rope_high_freq_factor),
     .doc = "`llama3`: a frequency that turns more often is kept; frequencies between the two are divided by a part of the factor.",
     .elsewhere = "high_freq_factor"},
    {RIPSTOP_SIZE(rope_original_max_position_embeddings), .default_text = "preset's, else 8192 with `llama3`", .unit = "tokens",
     .doc = "`llama3`: the longest sequence before the context was extended; 0 with other types.",
     .elsewhere = "original_max_position_embeddings"},

    {RIPSTOP_KEY(lora, rank), .range = {0, 1 << 20},
     .doc = "Train adapters of this rank (LoRA) beside the frozen weights of `model.pretrained`; at most the smaller side of each target's matrix. 0: train all weights.",
     .elsewhere = "r lora.rank | lora_r lora_rank lora.dim lora_dim use_peft"},
    {RIPSTOP_KEY(lora, alpha), .range = {0, 1e6, true}, .default_text = "required with a rank",
     .doc = "An adapter's product counts `alpha` / `rank` times.",
     .elsewhere = "lora_alpha lora.alpha | lora.scale lora.scaling"},
    {RIPSTOP_KEY(lora, dropout), .range = {0, 1, false, true},
     .range_hint = "lora.dropout = 0.0 drops nothing",
     .doc = "Probability that training drops an element of an adapter's input. The same elements on every mesh.",
     .elsewhere = "lora_dropout"},
    {RIPSTOP_KEY(lora, targets),
     .doc = "The matrices of each layer that have an adapter.",
     .elsewhere = "target_modules | lora_target_modules lora_attn_modules lora_target lora.modules"},
    {RIPSTOP_KEY(lora, rslora),
     .doc = "`alpha` / sqrt(`rank`) instead of `alpha` / `rank`: rank-stabilized LoRA.",
     .elsewhere = "use_rslora | rs_lora"},
    {RIPSTOP_KEY(lora, adapter), .presence = Presence::kOptional, .may_change_on_resume = true,
     .doc = "Start from this directory of PEFT's, of the same rank, alpha and targets, instead of new adapters.",
     .elsewhere = "| adapter_name_or_path peft_model_id lora_path resume_adapter"},

    {RIPSTOP_KEY(mesh, replicate), .range = {1, kManyRanks}, .may_change_on_resume = true, .unit = "ranks",
     .doc = "Copies of the model, which differ only in their data (DDP). Above 1 together with `fsdp`: hybrid sharding.",
     .elsewhere = "parallelism.data_parallel_replicate_degree | dp_replicate data_parallel_size dp ddp"},
    {RIPSTOP_KEY(mesh, pipeline), .range = {1, kManyParts}, .may_change_on_resume = true, .unit = "ranks",
     .doc = "Ranks among which the layers are cut, a stage on each: for links between nodes that are too slow for fsdp.",
     .elsewhere = "parallelism.pipeline_parallel_degree | pp pp_size pipeline_parallel pipeline_parallel_size "
                  "pipeline_model_parallel_size"},
    {RIPSTOP_KEY(mesh, pipeline_stages_per_rank), .range = {1, 2}, .may_change_on_resume = true, .unit = "stages",
     .doc = "2: ranks of a pipeline have two stages each (interleaved), idle about half as long and send twice as much, the first and the last rank three times. Needs a multiple of `mesh.pipeline` micro-batches.",
     .elsewhere = "| virtual_pipeline_model_parallel_size num_virtual_stages_per_pipeline_rank"},
    {RIPSTOP_KEY(mesh, pipeline_layers), .range = {0, 1 << 20}, .may_change_on_resume = true, .none_is_auto = true, .unit = "layers",
     .doc = "Layers of each stage, as in `[9, 8, 8, 7]`; `auto`: such that all stages take about as long.",
     .elsewhere = "parallelism.module_fqns_per_model_part | pipeline_parallel_split_points decoder_first_pipeline_num_layers"},
    {RIPSTOP_KEY(mesh, fsdp), .range = {1, kManyRanks}, .may_change_on_resume = true, .none_is_auto = true, .unit = "ranks",
     .doc = "Ranks that shard the weights, gradients and moments; `auto`: all ranks / (`replicate` x `pipeline` x `tensor`).",
     .elsewhere = "fsdp parallelism.data_parallel_shard_degree | dp_shard fsdp_size zero sharding_strategy"},
    {RIPSTOP_KEY(mesh, tensor), .range = {1, kManyParts}, .may_change_on_resume = true, .unit = "ranks",
     .doc = "Ranks that compute one layer together, inside a node; must divide both numbers of heads.",
     .elsewhere = "tp_size parallelism.tensor_parallel_degree | tp tensor_parallel tensor_model_parallel_size "
                  "tensor_parallel_size"},
    {RIPSTOP_KEY(mesh, allow_tensor_across_nodes), .may_change_on_resume = true,
     .doc = "Allow tensor groups that span nodes."},
    {RIPSTOP_KEY(mesh, overlap_tensor), .may_change_on_resume = true, .none_is_auto = true,
     .doc = "Split matrix products into parts, so that communication overlaps with them. \"auto\": on GPUs, if a part has 2,048 rows or more.",
     .elsewhere = "parallelism.enable_async_tensor_parallel | async_tp tp_comm_overlap"},

    {RIPSTOP_KEY(data, directory), .presence = Presence::kRequired, .may_change_on_resume = true,
     .doc = "The data set that `ripstop prepare` wrote, or `directories`. A resumed run compares its content, not its path.",
     .elsewhere = "dataset_name training.dataset_path | data_dir data_path dataset train_file"},
    {RIPSTOP_KEY(data, directories), .presence = Presence::kOptional, .may_change_on_resume = true,
     .doc = "Several data sets of one tokenizer instead of `directory`, as in `[\"sets/a\", \"sets/b\"]`. A sequence has examples of one set; without `weights` an epoch has all sequences of all sets.",
     .elsewhere = "| dataset_mixer datasets data_dirs train_files"},
    {RIPSTOP_KEY(data, weights), .presence = Presence::kOptional, .range = {0, 1e9}, .may_change_if_allowed = true,
     .doc = "The shares of `directories` in the sequences, as in `[0.7, 0.3]`, divided by their sum: each sequence is of a set drawn by them, and each set has epochs of its own. Needs `train.steps`.",
     .elsewhere = "| interleave_probs dataset_weights mixing_weights probabilities sampling_weights blend"},
    {RIPSTOP_KEY(data, sequence_length), .presence = Presence::kRequired, .range = {2, kManyTokens}, .unit = "tokens",
     .doc = "Tokens of a sequence. A longer document is cut; its summary is cut only if it alone is longer. A conversation loses whole turns.",
     .elsewhere = "max_seq_length max_length training.seq_len | seq_length context_length block_size "
                  "model_max_length max_source_length"},
    {RIPSTOP_KEY(data, pack),
     .doc = "Pack several examples into a sequence. Attention stays inside each example.",
     .elsewhere = "packing | sample_packing pack_sequences group_by_length"},
    {RIPSTOP_KEY(data, loss_on),
     .doc = "Tokens that count in the loss: those of the summary, or `all`; in a conversation those of all the assistant's turns "
            "(also `all`), or of the `last`. `auto`: `summary` or `assistant`, as the data are.",
     .elsewhere = "completion_only_loss assistant_only_loss | train_on_inputs loss_mask"},
    {RIPSTOP_KEY(data, shuffle),
     .doc = "A new order of the examples each epoch. `false`: the order of the file, and a packed sequence holds neighbours.",
     .elsewhere = "| shuffle_data shuffle_dataset"},
    {RIPSTOP_KEY(data, shuffle_seed), .range = {0, kLargestSeed}, .default_text = "`run.seed`",
     .doc = "Seed of the sample order.",
     .elsewhere = "data_seed | sampler_seed"},

    {RIPSTOP_KEY(train, steps), .presence = Presence::kOptional, .range = {1, kManySteps}, .may_change_if_allowed = true, .unit = "steps",
     .doc = "Optimizer steps of the whole run. Give either this or `epochs`.",
     .elsewhere = "max_steps training.steps | num_steps iterations total_steps train_steps max_iters"},
    {RIPSTOP_KEY(train, epochs), .presence = Presence::kOptional, .range = {1, 1e6}, .may_change_if_allowed = true, .unit = "epochs",
     .doc = "Passes over the data. Give either this or `steps`.",
     .elsewhere = "num_train_epochs | num_epochs max_epochs"},
    {RIPSTOP_KEY(train, global_batch_sequences), .presence = Presence::kRequired, .range = {1, kManySequences}, .unit = "sequences",
     .doc = "Sequences of one optimizer step, of all ranks together.",
     .elsewhere = "training.global_batch_size | batch_size train_batch_size total_batch_size"},
    {RIPSTOP_KEY(train, micro_batch_sequences), .range = {1, 1 << 30}, .may_change_on_resume = true, .none_is_auto = true,
     .unit = "sequences",
     .doc = "Sequences that a tensor group computes at once; `auto`: the largest that fits into memory and leaves no row empty, on a CPU at most 4,096 tokens, in a pipeline 2,048, or one sequence. The group accumulates the gradients of its share of the global batch.",
     .elsewhere = "per_device_train_batch_size training.local_batch_size | micro_batch_size "
                  "train_micro_batch_size_per_gpu device_batch_size auto_find_batch_size per_device_eval_batch_size"},
    {RIPSTOP_KEY(train, recompute), .may_change_on_resume = true,
     .doc = "Activations that backward computes again, to save memory: the norms and the largest product of each block, or the whole block; `auto`: the least with which a micro-batch fits. With the same micro-batch the result is the same.",
     .elsewhere = "gradient_checkpointing activation_checkpoint.mode | activation_checkpointing "
                  "recompute_granularity checkpoint_activations"},
    {RIPSTOP_KEY(train, reshard_after_forward), .may_change_on_resume = true, .none_is_auto = true,
     .doc = "Free gathered weights between forward and backward (ZeRO-3); `false` keeps them (ZeRO-2); `auto`: in a pipeline `false` if that fits into memory, else `true`.",
     .elsewhere = "fsdp_reshard_after_forward parallelism.fsdp_reshard_after_forward | zero_stage"},
    {RIPSTOP_KEY(train, validate_at_start),
     .doc = "Validate the initial weights too, before step 1: the scores beside which training is judged. They are no checkpoint, so never the best one.",
     .elsewhere = "eval_on_start | validate_on_start eval_at_start val_at_start eval_before_train"},
    {RIPSTOP_KEY(train, validate_every), .range = {0, kManySteps}, .may_change_on_resume = true, .unit = "steps",
     .doc = "Steps between validations, which also come after the last step; 0: off.",
     .elsewhere = "eval_steps validation.freq | eval_every eval_interval val_interval eval_strategy do_eval"},
    {RIPSTOP_KEY(train, stop_after_validations), .range = {0, kManySteps}, .may_change_on_resume = true, .unit = "validations",
     .doc = "Training ends after so many validations in a row without an improvement of `checkpoint.keep_best`'s metric; 0: never. The learning rate is that of the whole run.",
     .elsewhere = "early_stopping_patience | patience early_stopping early_stopping_rounds"},
    {RIPSTOP_KEY(train, max_grad_norm), .range = {0, 1e12},
     .range_hint = "train.max_grad_norm = 0.0 is off", .may_change_if_allowed = true,
     .doc = "Gradients with a larger norm are scaled down to this norm; 0: off.",
     .elsewhere = "max_grad_norm training.max_norm | grad_clip clip_grad gradient_clip_val clip"},

    {RIPSTOP_KEY(optimizer, learning_rate), .presence = Presence::kRequired, .range = {0, 1000, true}, .may_change_if_allowed = true,
     .doc = "The highest rate of the schedule. Try 2e-5 for fine-tuning, and 20 times that for training from scratch.",
     .elsewhere = "learning_rate optimizer.lr | lr max_lr base_lr"},
    {RIPSTOP_KEY(optimizer, betas), .range = {0, 1, false, true},
     .doc = "Decay rates of AdamW's two moments.",
     .elsewhere = "adam_beta1 adam_beta2 optimizer.beta1 optimizer.beta2 | beta"},
    {RIPSTOP_KEY(optimizer, epsilon), .range = {kSmallestFloat, 1},
     .doc = "Added to the root of the second moment.",
     .elsewhere = "adam_epsilon optimizer.eps | adam_eps"},
    {RIPSTOP_KEY(optimizer, weight_decay), .range = {0, 1000}, .may_change_if_allowed = true,
     .doc = "Weight decay, decoupled from the gradient. Only of matrices, unless `decay_norms`.",
     .elsewhere = "weight_decay optimizer.weight_decay | wd decay"},
    {RIPSTOP_KEY(optimizer, decay_norms),
     .doc = "Decay the weights of the norms and the biases too."},
    {RIPSTOP_KEY(optimizer, moments),
     .doc = "Data type in which AdamW's moments are stored: 8 bytes for each weight, or 4. `bfloat16` is rounded at random, so that small changes count on average.",
     .elsewhere = "| adam_dtype optim_dtype optimizer_dtype state_dtype moment_dtype exp_avg_dtype exp_avg_sq_dtype "
                  "bf16_optimizer_states"},

    {RIPSTOP_KEY(schedule, kind), .may_change_if_allowed = true,
     .doc = "How the learning rate falls after the warm-up; `wsd` (warm-up, stable, decay): only at the end.",
     .elsewhere = "lr_scheduler_type lr_scheduler.decay_type | scheduler lr_schedule lr_decay_style"},
    {RIPSTOP_KEY(schedule, warmup_steps), .range = {0, kManySteps}, .may_change_if_allowed = true, .unit = "steps",
     .doc = "Steps in which the rate rises linearly: step s has s / `warmup_steps` of the highest rate.",
     .elsewhere = "warmup_steps lr_scheduler.warmup_steps | warmup lr_warmup warmup_iters"},
    {RIPSTOP_KEY(schedule, minimum_ratio), .range = {0, 1}, .may_change_if_allowed = true,
     .doc = "The rate that a step after the last would have, as a share of the highest rate.",
     .elsewhere = "min_lr_rate lr_scheduler.min_lr_factor | min_lr min_lr_ratio lr_min minimum_lr lr_scheduler_kwargs"},
    {RIPSTOP_KEY(schedule, decay_ratio), .range = {0, 1, true},
     .range_hint = "schedule.kind = \"constant\" never falls", .may_change_if_allowed = true,
     .doc = "`wsd`: the rate falls in this share of the steps, the last ones, and is the highest between warm-up and fall.",
     .elsewhere = "lr_scheduler.decay_ratio | num_decay_steps decay_steps cooldown_steps"},
    {RIPSTOP_KEY(schedule, decay), .may_change_if_allowed = true,
     .doc = "`wsd`: how the rate falls.",
     .elsewhere = "decay_type | lr_decay_type cooldown_type"},

    {RIPSTOP_KEY(precision, compute),
     .doc = "Data type of weights and activations in a step. Master weights are float32.",
     .elsewhere = "bf16 training.mixed_precision_param | dtype fp16 torch_dtype mixed_precision"},
    {RIPSTOP_KEY(precision, reduce),
     .doc = "Data type in which ranks send gradients, over `fsdp` and over `replicate`. They are summed in float32.",
     .elsewhere = "training.mixed_precision_reduce | reduce_dtype grad_reduce_in_fp32"},

    {RIPSTOP_KEY(checkpoint, every_steps), .range = {0, kManySteps}, .may_change_on_resume = true, .unit = "steps",
     .doc = "Steps between checkpoints; 0: only of new best states, at the end, and when a stop is requested.",
     .elsewhere = "save_steps checkpoint.interval | save_every checkpoint_every save_interval save_strategy"},
    {RIPSTOP_KEY(checkpoint, keep), .range = {0, 1e6}, .may_change_on_resume = true, .unit = "checkpoints",
     .doc = "Newest checkpoints that are kept, and the best one besides; 0: all.",
     .elsewhere = "save_total_limit checkpoint.keep_latest_k | keep_last max_to_keep"},
    {RIPSTOP_KEY(checkpoint, keep_best), .may_change_on_resume = true,
     .doc = "Metric that decides which checkpoint is the best one. `rougeL` needs `generation.validate_examples`.",
     .elsewhere = "metric_for_best_model | load_best_model_at_end save_best"},
    {RIPSTOP_KEY(checkpoint, asynchronous), .may_change_on_resume = true,
     .doc = "Write checkpoints while training goes on; `false`: training waits for every save.",
     .elsewhere = "checkpoint.async_mode | async_save async"},
    {RIPSTOP_KEY(checkpoint, snapshot_mib), .range = {0, 1e9}, .may_change_on_resume = true, .none_is_auto = true, .unit = "MiB",
     .doc = "Host memory that a rank may take for copies that are written while training goes on. Updates of units that do not fit wait until they are written. `auto`: what is free, or as much of it as the system pins for a GPU.",
     .elsewhere = "| snapshot_memory staging_memory host_memory"},

    {RIPSTOP_KEY(generation, num_beams), .range = {1, 1024}, .may_change_on_resume = true, .unit = "beams",
     .doc = "Beams of the search for the best summary; 1: no search.",
     .elsewhere = "num_beams generation_num_beams | beam_size beams"},
    {RIPSTOP_KEY(generation, length_penalty), .range = {-100, 100}, .may_change_on_resume = true,
     .doc = "A search divides the log probability of a summary by its length to this power: above 0 favours long ones.",
     .elsewhere = "length_penalty | len_penalty"},
    {RIPSTOP_KEY(generation, early_stopping), .may_change_on_resume = true,
     .doc = "A search ends: `true`, when `num_beams` summaries have ended; `false`, when the best beam scores no better than the worst of these now; `never`, when it cannot at any length.",
     .elsewhere = "early_stopping"},
    {RIPSTOP_KEY(generation, no_repeat_ngram_size), .range = {0, 1 << 20}, .may_change_on_resume = true, .unit = "tokens",
     .doc = "No sequence of this many tokens appears twice in document and summary together; 0: off.",
     .elsewhere = "no_repeat_ngram_size"},
    {RIPSTOP_KEY(generation, min_new_tokens), .range = {0, 1 << 30}, .may_change_on_resume = true, .unit = "tokens",
     .doc = "Tokens of the shortest summary, without the end token.",
     .elsewhere = "min_new_tokens | min_length min_tokens min_target_length"},
    {RIPSTOP_KEY(generation, max_new_tokens), .range = {1, 1 << 30}, .may_change_on_resume = true, .unit = "tokens",
     .doc = "Tokens of the longest summary.",
     .elsewhere = "max_new_tokens generation_max_length | max_length max_target_length max_tokens"},
    {RIPSTOP_KEY(generation, do_sample), .may_change_on_resume = true,
     .doc = "Draw tokens at random instead of taking the most likely ones. Not together with beams.",
     .elsewhere = "do_sample | sample sampling"},
    {RIPSTOP_KEY(generation, temperature), .range = {0, 1e6, true},
     .range_hint = "generation.do_sample = false always takes the most likely token", .may_change_on_resume = true,
     .doc = "Sampling divides the logits by it: below 1 favours likely tokens.",
     .elsewhere = "temperature | temp"},
    {RIPSTOP_KEY(generation, top_k), .range = {0, 1 << 24}, .may_change_on_resume = true, .unit = "tokens",
     .doc = "Sampling draws among this many of the most likely tokens; 0: all.",
     .elsewhere = "top_k | topk"},
    {RIPSTOP_KEY(generation, top_p), .range = {0, 1, true},
     .range_hint = "generation.top_p = 1.0 draws among all tokens", .may_change_on_resume = true,
     .doc = "Sampling draws among the most likely tokens whose probabilities sum to this; 1: all.",
     .elsewhere = "top_p | topp nucleus"},
    {RIPSTOP_KEY(generation, seed), .range = {0, kLargestSeed}, .may_change_on_resume = true,
     .doc = "Seed of sampling. A summary depends on it and on its document's number, not on batches and ranks.",
     .elsewhere = "| sampling_seed generation_seed"},
    {RIPSTOP_KEY(generation, eos_token_id), .range = {0, 1 << 24}, .may_change_on_resume = true,
     .doc = "A token id or a list of ids that end a text, beside the end token of the data set; `[]`: those of `model.pretrained`.",
     .elsewhere = "eos_token_id | stop_token_ids stop_tokens end_tokens"},
    {RIPSTOP_KEY(generation, validate_examples), .range = {0, 1e9}, .may_change_on_resume = true, .unit = "documents",
     .doc = "Validation documents that each validation summarizes, to measure ROUGE; 0: off.",
     .elsewhere = "predict_with_generate | max_eval_samples compute_metrics"},

    {RIPSTOP_KEY(log, every_steps), .range = {1, kManySteps}, .may_change_on_resume = true, .unit = "steps",
     .doc = "Steps between lines on the screen. metrics.jsonl has every step.",
     .elsewhere = "logging_steps metrics.log_freq | log_every log_interval print_freq logging_strategy disable_tqdm"},
    {RIPSTOP_KEY(log, tensorboard), .may_change_on_resume = true,
     .doc = "Write [event files](formats.md#event-files-of-tensorboard) for TensorBoard too, beside metrics.jsonl.",
     .elsewhere = "report_to metrics.enable_tensorboard"},
};
// clang-format on
#undef RIPSTOP_KEY

}  // namespace

std::string ConfigKey::path() const {
  return fmt::format("{}.{}", section, name);
}

bool is_in_range(const ConfigKey& key, double value) {
  const auto [least, most, above_least, below_most] = key.range;
  // Training computes in float32: a value that equals an excluded bound there, or nearly, is refused.
  const auto rounded = static_cast<float>(value);
  const float above = rounded - static_cast<float>(least);
  const bool low = above_least ? above < std::numeric_limits<float>::min() : value < least;
  const bool high = below_most ? rounded >= static_cast<float>(most) : value > most;
  return std::isfinite(value) && !low && !high;
}

bool is_of_wsd(const ConfigKey& key) {
  return key.section == "schedule" && key.name.starts_with("decay");
}

std::span<const ConfigKey> config_keys() {
  return kKeys;
}

const ConfigKey* find_config_key(std::string_view section, std::string_view name) {
  for (const ConfigKey& key : kKeys)
    if (key.section == section && key.name == name) return &key;
  return nullptr;
}

}  // namespace ripstop
