# Runs the stages of tests/bench/gpu on the CPU with tiny shapes and checks their output; with EMULATED also the first one
# from an unpacked pack, on an emulated GPU. So time on a GPU is not lost to a mistake that could be found without one.
#   cmake -D BUILD=build/cpu-release -D OUT=build/rehearsal [-D EMULATED=ON] -P tests/bench/gpu_rehearsal.cmake
set(gpu ${CMAKE_CURRENT_LIST_DIR}/gpu)
file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT})

# run(EXPECTED_STATUS FOLDER COMMAND...): runs a stage whose results come to FOLDER. Sets `json` to its JSON and `text` to
# its output.
function(run EXPECTED FOLDER)
  execute_process(COMMAND ${ARGN} --out ${FOLDER} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text
                  WORKING_DIRECTORY ${OUT})
  message("${text}")
  if(NOT status EQUAL EXPECTED)
    message(FATAL_ERROR "${ARGN} ended with ${status}, expected ${EXPECTED}")
  endif()
  file(GLOB files ${FOLDER}/*.json)
  file(READ ${files} json)
  set(json "${json}" PARENT_SCOPE)
  set(text "${text}" PARENT_SCOPE)
endfunction()
macro(stage EXPECTED NAME)
  run(${EXPECTED} ${OUT}/${NAME} ${gpu} ${NAME} --device cpu --small ${ARGN})
endmacro()

# states(EXPECTED NAME...): checks the states of results of the last stage
function(states EXPECTED)
  string(JSON count LENGTH "${json}" results)
  math(EXPR last "${count} - 1")
  foreach(i RANGE ${last})
    string(JSON name GET "${json}" results ${i} name)
    string(JSON state_of_${name} GET "${json}" results ${i} state)
  endforeach()
  foreach(name ${ARGN})
    if(NOT state_of_${name} MATCHES "^(${EXPECTED})$")
      message(FATAL_ERROR "${name} is '${state_of_${name}}', expected ${EXPECTED}")
    endif()
  endforeach()
endfunction()

function(positive)
  string(JSON value GET "${json}" ${ARGN})
  if(NOT value GREATER 0)
    message(FATAL_ERROR "${ARGN} is '${value}'")
  endif()
endfunction()
function(expect PATTERN)
  if(NOT json MATCHES "${PATTERN}")
    message(FATAL_ERROR "no '${PATTERN}' in ${json}")
  endif()
endfunction()

stage(0 check --build ${BUILD})
states(passed program check_1 check_fsdp_tensor check_replicate_tensor check_replicate_fsdp parity_1 parity_4 random_documents)
states("skipped|passed" ops ranks_1 ranks_4 stream_order nccl_calls nccl_shared_gpu sanitizer_memcheck sanitizer_racecheck)
expect("median [0-9.e-]+ s, slowest tenth [0-9.e-]+ s")

stage(0 kernels --build ${BUILD})
states(passed kernels)
positive(kernels copy_bytes_per_second)
positive(kernels product_flops_per_second float32)
string(JSON rows LENGTH "${json}" kernels rows)
if(rows LESS 40)
  message(FATAL_ERROR "${rows} rows")
endif()
positive(kernels rows 0 share_of_floor)
positive(kernels rows 0 share_of_onednn)

# An opponent with a known result: half a token per second.
file(WRITE ${OUT}/opponent.sh "echo '{\"tokens_per_second\": 0.5}'\n")
stage(0 second --build ${BUILD} --rounds 2 --python sh --pytorch ${OUT}/opponent.sh)
states(passed train_1.1b train_1.1b_2 train_1.1b_pytorch train_1.1b_2_pytorch train_110m train_110m_pytorch)
positive(runs 0 tokens_per_second)
expect("0.5 tokens/s")
expect("[0-9.]+ tokens/s, of 8 documents [0-9.]+, to PyTorch [0-9.]+")

# A missing program is reported and skipped.
file(MAKE_DIRECTORY ${OUT}/bare)
file(CREATE_LINK ${BUILD}/ripstop ${OUT}/bare/ripstop SYMBOLIC)
stage(0 kernels --build ${OUT}/bare)
states(skipped kernels)
stage(0 110m --build ${OUT}/bare --python sh --pytorch ${OUT}/opponent.sh)
states(skipped train_110m)

# A failure is reported.
file(WRITE ${OUT}/broken/tests/bench/kernels_bench "#!/bin/sh\necho out of luck\nexit 3\n")
file(CHMOD ${OUT}/broken/tests/bench/kernels_bench PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
stage(1 kernels --build ${OUT}/broken)
states(failed kernels)
expect("exit 3: out of luck")

# The first hour: in a folder that has nothing but the pack.
if(EMULATED)
  execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/gpu_pack ${OUT}/gpu_pack --emulated --build ${BUILD}
                  COMMAND_ERROR_IS_FATAL ANY)
  file(ARCHIVE_EXTRACT INPUT ${OUT}/gpu_pack.tar.xz DESTINATION ${OUT}/empty)
  file(REMOVE_RECURSE ${OUT}/gpu_pack)
  run(0 ${OUT}/empty/out env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/nowhere RIPSTOP_EMULATED_KERNELS=cpu
      ${OUT}/empty/gpu_pack/gpu first --small --libraries ${EMULATED})
  states(passed doctor gpu properties ops parity_1 check_1 check_fsdp_tensor train_110m train_1.1b train_7b_layers kernels
         nccl_calls tensor_axis repeat)
  states("skipped|passed" sanitizer_memcheck sanitizer_racecheck)
  expect("waited for [0-9.e-]+ s of a step of [0-9.e-]+ s")
  string(JSON last LENGTH "${json}" kernels gains)
  math(EXPR last "${last} - 1")
  foreach(i RANGE ${last})
    positive(kernels gains ${i} seconds)
    string(JSON name GET "${json}" kernels gains ${i} name)
    list(APPEND gains "${name}")
    if(NOT name STREQUAL "RoPE in a neighbour") # whose time would vanish
      positive(kernels gains ${i} floor_seconds)
    endif()
  endforeach()
  if(NOT gains STREQUAL "logits in one pass;SwiGLU in the products;RoPE in a neighbour;fp8 products;decoding by a graph")
    message(FATAL_ERROR "gains: ${gains}")
  endif()
  expect("\"properties\", \"state\": \"passed\", \"seconds\": [0-9]+, \"note\": \"0 differ from the description\"")
endif()
