# The kernels' files, for a target of the folder that includes this: one per instruction set, each with its own flags. Which one
# runs is decided by the processor (kernels.h).
set(WEIGHTCAST_KERNELS ${CMAKE_CURRENT_LIST_DIR}/dispatch.cpp ${CMAKE_CURRENT_LIST_DIR}/scalar.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND WEIGHTCAST_KERNELS ${CMAKE_CURRENT_LIST_DIR}/avx2.cpp ${CMAKE_CURRENT_LIST_DIR}/avx512.cpp)
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mbmi;-mpopcnt;-O2")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/avx512.cpp PROPERTIES COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vbmi2;-mbmi;-mpopcnt;-O2;-fno-sanitize=thread")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/dispatch.cpp PROPERTIES COMPILE_DEFINITIONS WEIGHTCAST_KERNELS_X86)
endif()
