# weightcast_library(NAME SOURCES... LINK targets...): one layer, as a static library that sees the repository root.
function(weightcast_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
endfunction()

# weightcast_test(NAME SOURCES... LINK targets... LABEL fast|sim|long|net [THREADS] [MEMORY] [TIMEOUT_S n]): one
# GoogleTest program; every TEST in it becomes one ctest test. THREADS: what runs under ThreadSanitizer; there its label
# is "threads". MEMORY: what runs under AddressSanitizer although it is not fast elsewhere; there it is. The targets
# tests_LABEL build all programs of a label.
function(weightcast_test name)
  cmake_parse_arguments(ARG "THREADS;MEMORY" "LABEL;TIMEOUT_S" "SOURCES;LINK" ${ARGN})
  if(ARG_THREADS AND WEIGHTCAST_SANITIZE STREQUAL "thread")
    set(ARG_LABEL threads)
  endif()
  if(ARG_MEMORY AND WEIGHTCAST_SANITIZE MATCHES "address")
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TIMEOUT_S)
    set(ARG_TIMEOUT_S 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  # Tests are compiled more often than they run: these halve the time that it takes.
  target_compile_options(${name} PRIVATE -O1 -g1)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main rapidcheck)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT_S})
  weightcast_label_target(${name} ${ARG_LABEL})
endfunction()

# Adds a program to the target tests_LABEL.
function(weightcast_label_target name label)
  if(NOT TARGET tests_${label})
    add_custom_target(tests_${label})
  endif()
  add_dependencies(tests_${label} ${name})
endfunction()

# weightcast_fuzz(NAME SOURCE CORPUS LINK targets...): a libFuzzer program with WEIGHTCAST_FUZZ, and in every build a
# test that replays the committed corpus through the same function.
function(weightcast_fuzz name source corpus)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  if(WEIGHTCAST_FUZZ)
    add_executable(${name} ${source})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${source} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp)
    add_test(NAME ${name}.replays_corpus COMMAND ${name} ${corpus})
    set_tests_properties(${name}.replays_corpus PROPERTIES LABELS fast TIMEOUT 60)
    weightcast_label_target(${name} fast)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()
