# The stand-ins of cuDNN, and what tests them alone: graphs, plans and refusals, without the rest of the device.
set(RIPSTOP_EMULATED_CUDNN cudnn.cpp cudnn_arithmetic.cpp cudnn_execution.cpp cudnn_interpreter.cpp cudnn_library.cpp
    cudnn_record.cpp cudnn_rule.cpp)
target_sources(ripstop_emulated_cuda PRIVATE ${RIPSTOP_EMULATED_CUDNN})
target_include_directories(ripstop_emulated_cuda PUBLIC ${cudnn_INCLUDE_DIR})
# Not linked: the installed cuDNN has functions of the same names. Mode real opens it.
set_source_files_properties(cudnn_library.cpp PROPERTIES
                            COMPILE_DEFINITIONS "RIPSTOP_CUDNN_LIBRARY=\"${cudnn_graph_LIBRARY}\"")
# Most of the time of a test goes into the interpreter.
set_source_files_properties(cudnn_arithmetic.cpp cudnn_interpreter.cpp PROPERTIES COMPILE_OPTIONS -O3
                            SKIP_PRECOMPILE_HEADERS ON)

include(${CMAKE_SOURCE_DIR}/tests/cuda/driver_without_device.cmake)
add_executable(emulated_cudnn_test
  ${CMAKE_SOURCE_DIR}/model/kernels/cuda/attention_graph.cpp
  ${CMAKE_SOURCE_DIR}/model/kernels/cuda/cudnn_graph.cpp
  ${RIPSTOP_EMULATED_CUDNN}
  cudnn_attention_test.cpp
  cudnn_execution_test.cpp
  cudnn_interpreter_test.cpp
  cudnn_plans_test.cpp
  cudnn_refusals_test.cpp
  cudnn_test_queue.cpp
)
target_include_directories(emulated_cudnn_test PRIVATE ${cudnn_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(emulated_cudnn_test PRIVATE ripstop_flags fmt::fmt GTest::gtest_main ${CMAKE_DL_LIBS})
add_dependencies(emulated_cudnn_test ripstop_driver_without_device)
ripstop_test_program(emulated_cudnn_test)
add_test(NAME emulated.cudnn CONFIGURATIONS Long COMMAND emulated_cudnn_test WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
# Plans of the installed cuDNN take a second each.
set_tests_properties(emulated.cudnn PROPERTIES LABELS emulated TIMEOUT 1200
                     ENVIRONMENT "OMP_NUM_THREADS=1;LD_LIBRARY_PATH=${RIPSTOP_LIBRARIES_WITHOUT_DEVICE}")
