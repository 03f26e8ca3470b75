# A driver for machines without a GPU (driver_without_device.c), as the target ripstop_driver_without_device. Sets
# RIPSTOP_LIBRARIES_WITHOUT_DEVICE, the LD_LIBRARY_PATH of programs in which cuDNN makes plans without one: cuDNN
# opens its own libraries, the run-time compiler and the driver by name.
get_filename_component(cudnn_folder "${cudnn_LIBRARY}" DIRECTORY)
set(libraries ${CMAKE_BINARY_DIR}/driver ${cudnn_folder} ${CUDAToolkit_LIBRARY_DIR} $ENV{LD_LIBRARY_PATH})
list(JOIN libraries ":" RIPSTOP_LIBRARIES_WITHOUT_DEVICE)
if(TARGET ripstop_driver_without_device)
  return()
endif()

# cuDNN asks the driver for every function. This one has them all, and none of them does anything.
find_library(RIPSTOP_DRIVER_STUB cuda HINTS ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES stubs NO_CACHE REQUIRED)
execute_process(COMMAND ${CMAKE_NM} -D --defined-only ${RIPSTOP_DRIVER_STUB} OUTPUT_VARIABLE functions
                COMMAND_ERROR_IS_FATAL ANY)
file(READ ${CMAKE_CURRENT_LIST_DIR}/driver_without_device.c own)
string(REGEX MATCHALL "cu[A-Z][A-Za-z0-9_]*" functions "${functions}")
list(REMOVE_DUPLICATES functions)
set(text "")
foreach(function ${functions})
  if(NOT own MATCHES "int ${function}\\(")
    string(APPEND text "NOTHING(${function})\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/driver/driver_functions.h CONTENT "${text}")
add_library(ripstop_driver_without_device SHARED ${CMAKE_CURRENT_LIST_DIR}/driver_without_device.c)
target_include_directories(ripstop_driver_without_device PRIVATE ${CMAKE_BINARY_DIR}/driver)
target_link_libraries(ripstop_driver_without_device PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(ripstop_driver_without_device PROPERTIES
  OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/driver)
