#!/usr/bin/env bash
# The way from a source file to its test. Fails if a source file has none, or if a row of the table below is stale.
#   tests/tested_sources_test.sh            checks every file
#   tests/tested_sources_test.sh FILE...    prints the tests of these files
#
# A test of the same stem is found by its name: model/config.cpp has tests/model/config_test.cpp. The words `ranks` (runs on
# several ranks) and `command` (runs the program) may stand before `test`. Every other file has a row in the table.
set -euo pipefail
cd "$(dirname "$0")/.."

# Pattern of source files, then the tests that cover them. The first row that matches counts.
table='
data/process/child_process.*             tests/data/process/process_identity_test.cpp tests/train/run/time_limit_test.cpp
data/corpus/corpus_*                     tests/data/corpus/corpus_test.cpp tests/data/corpus/corpus_messages_test.cpp
data/chat/chat_style.*                   tests/data/chat/chat_template_test.cpp
data/chat/chat_jinja.*                   tests/data/chat/chat_template_test.cpp
data/chat/conversation.h                 tests/data/chat/encode_conversation_test.cpp
data/prepare/encode_pool.*               tests/data/prepare/prepare_test.cpp
data/files/io.*                          tests/train/checkpoint/checkpoint_faults_test.cpp
data/text/json_struct.h                  tests/train/checkpoint/checkpoint_damage_test.cpp tests/train/report/metrics_lines_test.cpp
data/text/line_input.*                   tests/data/text/text_lines_test.cpp tests/data/corpus/corpus_test.cpp
data/dataset/loss_on.h                   tests/data/dataset/batch_loader_test.cpp
data/hdf5/hdf5_*                         tests/data/hdf5/hdf5_test.cpp
data/dataset/data_cursor.h               tests/data/dataset/mixture_test.cpp
data/dataset/packed_batch.h              tests/data/dataset/batch_loader_test.cpp
data/prepare/prepare_checks.*            tests/data/prepare/prepare_test.cpp tests/train/commands/prepare_command_test.cpp
data/prepare/prepare_json.*              tests/data/prepare/prepare_test.cpp tests/data/dataset/token_dataset_test.cpp
data/tokenizer/protobuf_fields.h         tests/data/tokenizer/tokenizer_test.cpp tests/train/exchange/write/export_tokenizer_test.cpp
data/tokenizer/added_tokens.*            tests/data/tokenizer/json_tokenizer_test.cpp tests/data/tokenizer/json_tokenizer_golden_test.cpp
data/tokenizer/bpe_model.*               tests/data/tokenizer/json_tokenizer_test.cpp tests/data/tokenizer/json_tokenizer_golden_test.cpp
data/tokenizer/regex*                    tests/data/tokenizer/json_tokenizer_test.cpp tests/data/tokenizer/bad_tokenizer_json_test.cpp
data/tokenizer/spanned_token.h           tests/data/tokenizer/json_tokenizer_test.cpp
data/tokenizer/text_step.*               tests/data/tokenizer/json_tokenizer_test.cpp tests/data/tokenizer/json_tokenizer_golden_test.cpp
data/tokenizer/token_decoder.*           tests/data/tokenizer/json_tokenizer_test.cpp tests/data/tokenizer/json_tokenizer_golden_test.cpp
data/tokenizer/tokenizer_json.*          tests/data/tokenizer/json_tokenizer_test.cpp tests/data/tokenizer/bad_tokenizer_json_test.cpp
data/tokenizer/traced_text.*             tests/data/tokenizer/json_tokenizer_test.cpp
data/tokenizer/unicode.*                 tests/data/tokenizer/json_tokenizer_test.cpp
data/tokenizer/sentencepiece_tokenizer.* tests/data/tokenizer/tokenizer_test.cpp tests/data/tokenizer/long_texts_test.cpp
data/tokenizer/sentencepiece_model.*     tests/data/tokenizer/tokenizer_test.cpp tests/train/exchange/write/export_tokenizer_test.cpp
data/dataset/sequence_reader.*           tests/data/dataset/batch_loader_test.cpp
data/tokenizer/text_sample.*             tests/data/tokenizer/tokenizer_test.cpp tests/data/prepare/prepare_test.cpp
data/text/tar_input.*                    tests/data/text/unpacked_input_test.cpp tests/data/corpus/corpus_test.cpp
data/dataset/token_dataset_*             tests/data/dataset/token_dataset_test.cpp
data/tokenizer/tokenizer_training.*      tests/data/tokenizer/tokenizer_test.cpp

model/attention.*                   tests/model/gradient_test.cpp
model/batch.*                       tests/model/gradient_test.cpp tests/model/head_loss_test.cpp
model/block.*                       tests/model/gradient_test.cpp tests/train/step/layout_ranks_test.cpp
model/embedding.*                   tests/model/gradient_test.cpp
model/initialize.*                  tests/train/step/layout_ranks_test.cpp
model/lora.*                        tests/model/adapters_test.cpp tests/parallel/unit_layout_test.cpp
model/kv_cache.h                    tests/train/generate/inference_model_test.cpp
model/mlp.*                         tests/model/gradient_test.cpp
model/parameter.*                   tests/model/config_test.cpp tests/parallel/unit_layout_test.cpp
model/parallel_linear.*             tests/model/gradient_test.cpp tests/parallel/tensor_parallel_test.cpp
model/recompute.h                   tests/model/gradient_test.cpp tests/train/plan/rank_plan_test.cpp
model/residual.*                    tests/model/gradient_test.cpp
model/transformer.*                 tests/model/gradient_test.cpp tests/train/step/layout_ranks_test.cpp
model/core/error.h                  tests/model/error_test.cpp tests/train/commands/command_line_test.cpp
model/core/function_ref.h           tests/train/evaluate/evaluation_ranks_test.cpp
model/core/philox.h                 tests/model/adamw_ops_test.cpp tests/train/generate/token_choice_test.cpp tests/train/step/layout_ranks_test.cpp
model/core/*                        tests/train/config/run_config_test.cpp tests/parallel/unit_layout_test.cpp
model/device/arena.*                tests/model/head_loss_test.cpp tests/train/step/layout_ranks_test.cpp
model/device/cpu_device.cpp         tests/model/ops_test.cpp
model/device/device.*               tests/model/ops_test.cpp tests/parallel/group_memory_test.cpp
model/device/dtype.h                tests/model/ops_test.cpp
model/device/range_recorder.*       tests/train/report/trace_file_test.cpp
model/device/tensor.h               tests/model/ops_test.cpp
model/device/no_cuda_device.cpp     tests/train/commands/command_line_test.cpp
model/device/cuda_machine.*         tests/cuda/device_ranks_test.cpp
model/device/cuda_*                 tests/emulated_device/gpus_test.sh tests/emulated_device/copies_test.cpp tests/cuda/stream_order_test.cpp tests/emulated_device/emulated_device_op_cases.cpp
model/ops/ops.*                     tests/model/ops_test.cpp tests/model/attention_ops_test.cpp tests/model/linear_ops_test.cpp tests/model/vocabulary_ops_test.cpp
model/ops/kernel_table.h            tests/model/ops_test.cpp
model/ops/operand_checks.*          tests/model/ops_test.cpp tests/model/attention_ops_test.cpp tests/model/linear_ops_test.cpp
model/ops/kernel_work.h             tests/train/plan/step_time_test.cpp
model/ops/observed_kernels.cpp      tests/train/plan/step_time_test.cpp
model/ops/*                         tests/model/gradient_test.cpp
model/kernels/cuda_attention.*      tests/model/cuda_attention_test.cpp
model/kernels/cuda_workspace*       tests/model/cuda_attention_test.cpp tests/train/plan/rank_plan_test.cpp
model/kernels/meta_kernels.cpp      tests/train/step/layout_ranks_test.cpp
model/kernels/no_cuda.cpp           tests/train/commands/command_line_test.cpp
model/kernels/cpu/adamw.cpp         tests/model/ops_test.cpp tests/model/adamw_ops_test.cpp
model/kernels/cpu/philox_words.h    tests/model/adamw_ops_test.cpp
model/kernels/cpu/attention*        tests/model/attention_ops_test.cpp
model/kernels/cpu/cached_attention* tests/model/attention_ops_test.cpp
model/kernels/cpu/norm_heads.cpp    tests/model/attention_ops_test.cpp
model/kernels/cpu/rope.cpp          tests/model/attention_ops_test.cpp
model/kernels/cpu/linear.*          tests/model/linear_ops_test.cpp
model/kernels/cpu/processor.*       tests/model/linear_ops_test.cpp tests/model/instruction_sets_test.sh
model/kernels/cpu/embedding.cpp     tests/model/vocabulary_ops_test.cpp
model/kernels/cpu/head_loss.cpp     tests/model/vocabulary_ops_test.cpp
model/kernels/cpu/*                 tests/model/ops_test.cpp tests/model/cpu_op_cases.cpp
model/kernels/cuda/attention*       tests/cuda/attention_plans_test.cpp tests/emulated_device/cudnn_attention_test.cpp tests/emulated_device/emulated_device_op_cases.cpp
model/kernels/cuda/cudnn_graph.*    tests/cuda/attention_plans_test.cpp tests/emulated_device/cudnn_attention_test.cpp
model/kernels/cuda/gemm*            tests/cuda/gemm_test.cpp
model/kernels/cuda/linear.cpp       tests/cuda/gemm_test.cpp tests/emulated_device/emulated_device_op_cases.cpp tests/cuda/device_op_tests.cpp
model/kernels/cuda/library_versions.cpp  .ci/run
model/kernels/cuda/ragged_documents.*    tests/emulation/ragged_documents_test.cpp
model/kernels/cuda/cuda_kernels.*   tests/emulated_device/emulated_device_op_cases.cpp tests/cuda/device_op_tests.cpp
model/kernels/cuda/*                tests/emulation/emulated_op_cases.cpp tests/emulation/barriers_test.cpp tests/cuda/device_op_tests.cpp

parallel/agreement.*                tests/parallel/mesh_ranks_test.cpp
parallel/collectives.*              tests/parallel/communicator_test.cpp tests/parallel/mpi_communicator_test.cpp
parallel/mesh_axes.h                tests/parallel/device_mesh_test.cpp tests/train/report/metrics_lines_test.cpp
parallel/mpi_transfer.*             tests/parallel/mpi_communicator_test.cpp
parallel/mpi_world.*                tests/parallel/mpi_communicator_test.cpp tests/parallel/failures_test.sh
parallel/nccl_*                     tests/emulated_device/nccl_ranks_test.cpp tests/emulated_device/nccl_messages_test.cpp tests/cuda/stream_order_test.cpp tests/cuda/device_ranks_test.cpp
parallel/no_nccl.cpp                tests/train/commands/command_line_test.cpp
parallel/pipeline_links.*           tests/train/step/pipeline_ranks_test.cpp
parallel/round_to_bfloat16.*        tests/parallel/communicator_test.cpp
parallel/sharded_transformer*       tests/train/step/layout_ranks_test.cpp tests/train/step/parity_ranks_test.cpp
parallel/staged_communicator.cpp    tests/parallel/mpi_communicator_test.cpp
parallel/watchdog.*                 tests/parallel/failures_test.sh

train/main.cpp                      tests/train/commands/command_line_test.cpp
train/config/*                      tests/train/config/run_config_test.cpp tests/train/config/bad_config_test.cpp
train/machine/device_choice.*       tests/cuda/device_ranks_test.cpp tests/train/commands/train_command_test.cpp
train/machine/equal_ranks.*         tests/train/commands/mixed_ranks_test.sh
train/machine/timed_product.*       tests/train/machine/rank_speed_test.cpp tests/train/machine/peak_flops_test.cpp
train/machine/version.*             tests/train/commands/command_line_test.cpp
train/machine/*                     tests/train/commands/command_line_test.cpp tests/train/run/resume_test.sh
train/checkpoint/checkpoint_*       tests/train/checkpoint/checkpoint_reshard_test.cpp
train/checkpoint/rank_file.*        tests/train/checkpoint/checkpoint_faults_test.cpp
train/checkpoint/*                  tests/train/checkpoint/checkpoint_damage_test.cpp
train/commands/check_report.*        tests/train/commands/check_command_test.cpp
train/evaluate/dataset_loss.*       tests/train/evaluate/evaluation_ranks_test.cpp tests/train/run/validation_ranks_test.cpp
train/evaluate/write_summaries.*    tests/train/evaluate/evaluation_ranks_test.cpp tests/train/run/validation_ranks_test.cpp
train/exchange/read/open_model.*         tests/train/exchange/read/stored_model_test.cpp tests/train/run/trainer_lora_test.cpp
train/exchange/write/export_files.h      tests/train/exchange/write/export_tokenizer_test.cpp tests/train/exchange/write/model_card_test.cpp
train/exchange/write/export_weights.*    tests/train/exchange/write/export_model_test.cpp
train/exchange/hugging_face/stored_elements.* tests/train/exchange/hugging_face/pretrained_weights_test.cpp tests/train/exchange/peft/peft_adapter_test.cpp
train/generate/loaded_model.*       tests/train/commands/evaluate_command_test.cpp
train/generate/write_texts.*        tests/train/generate/prompt_test.cpp tests/train/generate/dealt_texts_test.cpp tests/train/evaluate/evaluation_ranks_test.cpp
train/page/*                        tests/train/commands/report_command_test.cpp
train/plan/pretrained_sizes.*       tests/train/run/trainer_pretrained_test.cpp tests/train/commands/pretrained_command_test.cpp
train/plan/*                        tests/train/config/bad_config_test.cpp tests/train/plan/rank_plan_test.cpp
train/report/run_account.h           tests/train/run/account_watch_test.cpp
train/report/set_metrics.h           tests/train/run/mixture_runs_test.cpp
train/run/kernel_plans.h            tests/emulated_device/steps_ranks_test.cpp
train/run/*                         tests/train/commands/train_command_test.cpp tests/train/run/resume_test.sh
train/commands/checkpoint_import.*   tests/train/commands/pretrained_command_test.cpp
train/commands/checkpoint_inspect.*  tests/train/commands/checkpoint_command_test.cpp tests/train/exchange/bad_pretrained_test.cpp
train/commands/model_arguments.*    tests/train/commands/evaluate_command_test.cpp
train/commands/config_table.cpp     tests/train/config/config_keys_test.cpp
train/commands/*                    tests/train/commands/command_line_test.cpp

slurm/quickstart.sbatch             tests/CMakeLists.txt
slurm/*                             tests/slurm/cluster_test.sh
'

sources() {
  find model parallel data train slurm -type f ! -name CMakeLists.txt ! -name '*.cmake' | sort
}

# find_tests FILE: the tests of its name, else those of its row, into the list `tests`; `row` is the pattern that matched.
find_tests() {
  local file=$1 folder=${1%/*} name=${1##*/} stem kind test pattern listed
  tests=() row=
  for stem in "${name%.*}" "${name//./_}"; do
    for kind in '' _ranks _command; do
      for test in "tests/$folder/$stem$kind"_test.{cpp,sh}; do
        if [[ -f $test ]]; then tests+=("$test"); fi
      done
    done
  done
  if [[ ${#tests[@]} -gt 0 ]]; then return; fi
  while read -r pattern listed; do
    # shellcheck disable=SC2053  # a pattern on the right
    if [[ -n $pattern && $file == $pattern ]]; then
      read -ra tests <<<"$listed"
      row=$pattern
      return
    fi
  done <<<"$table"
}

if [[ $# -gt 0 ]]; then
  for file; do
    find_tests "$file"
    printf '%s\n' "${tests[@]/#/$file: }"
  done
  exit
fi

status=0
complain() {
  echo "$*"
  status=1
}
declare -A used
while read -r file; do
  find_tests "$file"
  if [[ -n $row ]]; then used[$row]=1; fi
  if [[ ${#tests[@]} -eq 0 ]]; then complain "$file has no test of its name, and no row in tests/tested_sources_test.sh"; fi
  for test in "${tests[@]}"; do [[ -f $test ]] || complain "$file: its test $test is not there"; done
done < <(sources)
while read -r pattern _; do
  if [[ -n $pattern && -z ${used[$pattern]:-} ]]; then complain "the row '$pattern' is not needed"; fi
done <<<"$table"

# The test can fail.
find_tests model/no_such_file.cpp
if [[ ${#tests[@]} -gt 0 ]]; then complain "tested_sources_test is blind: model/no_such_file.cpp has a test"; fi
exit $status
