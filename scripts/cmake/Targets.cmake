# weightcast_library(NAME SOURCES... LINK targets... [APART sources...]): one layer, as a static library that sees the
# repository root. APART: those of its sources that WEIGHTCAST_UNITY compiles in a batch beside the others', since one of
# those has the same name in its anonymous namespace. After "|" another such batch begins.
function(weightcast_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK;APART" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
  weightcast_batches(${name} "${ARG_SOURCES}" "${ARG_APART}")
endfunction()

# Sixteen sources make a batch; those APART make others.
function(weightcast_batches name sources apart)
  if(apart)
    list(REMOVE_ITEM sources ${apart})
  endif()
  set(count 0)
  foreach(source IN LISTS sources)
    math(EXPR batch "${count} / 16")
    math(EXPR count "${count} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP batch_${batch})
  endforeach()
  set(batch 0)
  foreach(source IN LISTS apart)
    if(source STREQUAL "|")
      math(EXPR batch "${batch} + 1")
    else()
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP apart_${batch})
    endif()
  endforeach()
  set_target_properties(${name} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

# weightcast_test(NAME SOURCES... LINK targets... LABEL fast|sim|net|long|bench|vllm [THREADS] [MEMORY] [TORCH]
#   [ALONE] [COST_S n] [SHARDS n] [APART sources...] [TEST_LIMIT_S n] [TIMEOUT_S n] [LAUNCHER program]): one GoogleTest program,
# which is one ctest test; tests/test_main.cpp writes how each TEST in it ended.
#   THREADS        it also runs under ThreadSanitizer, where its label is "threads"
#   MEMORY         it also runs under AddressSanitizer, although its label is not "fast"
#   TORCH          it takes LibTorch, so that no sanitizer's build has it
#   ALONE          it measures rates, so nothing runs beside it
#   COST_S         about how long it takes: ctest starts the longest first
#   SHARDS         it is as many ctest tests, each with a share of the TESTs, which run beside each other
#   LAUNCHER       runs the program; with status 77 it says that it cannot
#   TEST_LIMIT_S   bounds one TEST, TIMEOUT_S the program
# The targets tests_LABEL build all that the tests of a label take. Of those labelled fast, what no sanitizer's build has
# is labelled plain, too: where AddressSanitizer runs the others, they need no second build.
function(weightcast_test name)
  cmake_parse_arguments(ARG "THREADS;MEMORY;TORCH;ALONE" "LABEL;COST_S;SHARDS;TEST_LIMIT_S;TIMEOUT_S;LAUNCHER" "SOURCES;LINK;APART" ${ARGN})
  if(ARG_THREADS AND WEIGHTCAST_SANITIZE STREQUAL "thread")
    set(ARG_LABEL threads)
  endif()
  if(ARG_MEMORY AND WEIGHTCAST_SANITIZE MATCHES "address")
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TEST_LIMIT_S)
    set(ARG_TEST_LIMIT_S 300)
  endif()
  if(NOT ARG_TIMEOUT_S)
    set(ARG_TIMEOUT_S 1800)
  endif()
  if(NOT ARG_COST_S)
    set(ARG_COST_S 1)
  endif()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  weightcast_test_main()
  add_executable(${name} ${ARG_SOURCES})
  weightcast_batches(${name} "${ARG_SOURCES}" "${ARG_APART}")
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} weightcast_test_main GTest::gtest GTest::gmock rapidcheck)
  if(ARG_TORCH AND ARG_LABEL STREQUAL "fast")
    list(APPEND ARG_LABEL plain)
  endif()
  weightcast_label_target(${name} ${ARG_LABEL})

  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(test ${name})
    if(ARG_SHARDS GREATER 1)
      set(test ${name}.${shard})
    endif()
    add_test(NAME ${test} COMMAND ${ARG_LAUNCHER} $<TARGET_FILE:${name}> --gtest_brief=1)
    if(ARG_LAUNCHER)
      set_tests_properties(${test} PROPERTIES SKIP_RETURN_CODE 77)
    endif()
    set_tests_properties(${test} PROPERTIES
      LABELS "${ARG_LABEL}"
      TIMEOUT ${ARG_TIMEOUT_S}
      COST ${ARG_COST_S}
      RUN_SERIAL ${ARG_ALONE}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard};WEIGHTCAST_TEST_RESULTS=${PROJECT_BINARY_DIR}/results/${test}.txt;WEIGHTCAST_TEST_LIMIT_S=${ARG_TEST_LIMIT_S}")
  endforeach()
endfunction()

# The main() that all test programs share, compiled once.
function(weightcast_test_main)
  if(NOT TARGET weightcast_test_main)
    add_library(weightcast_test_main STATIC ${PROJECT_SOURCE_DIR}/tests/test_main.cpp)
    target_link_libraries(weightcast_test_main PUBLIC GTest::gtest GTest::gmock)
  endif()
endfunction()

# weightcast_label_target(NAME LABEL...): adds a program to the targets tests_LABEL.
function(weightcast_label_target name)
  foreach(label IN LISTS ARGN)
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()

# weightcast_fuzz(NAME LINK targets...): the program NAME_fuzz from NAME_fuzz.cpp. With WEIGHTCAST_FUZZ it is one of
# libFuzzer; in every other build it is a test that replays the committed inputs, corpus/NAME.
function(weightcast_fuzz name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  set(program ${name}_fuzz)
  add_executable(${program} ${program}.cpp)
  target_link_libraries(${program} PRIVATE ${ARG_LINK})
  if(WEIGHTCAST_FUZZ)
    target_compile_options(${program} PRIVATE -fsanitize=fuzzer)
    target_link_options(${program} PRIVATE -fsanitize=fuzzer)
    weightcast_label_target(${program} fuzz)
  else()
    target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp)
    add_test(NAME ${program}.replays_corpus COMMAND ${program} ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
    set_tests_properties(${program}.replays_corpus PROPERTIES LABELS fast TIMEOUT 300)
    weightcast_label_target(${program} fast)
  endif()
endfunction()

# weightcast_oracle_test(PROGRAM ORACLE FILTER): a test labelled oracle. tests/oracles/ORACLE.py makes the lines of
# golden/ORACLE.jsonl anew, and more for the tests of PROGRAM that FILTER names.
function(weightcast_oracle_test program oracle filter)
  set(oracles ${PROJECT_SOURCE_DIR}/tests/oracles)
  add_test(NAME oracle.${oracle} COMMAND ${oracles}/run.sh ${oracles}/golden.py check ${oracles}/${oracle}.py
    ${CMAKE_CURRENT_SOURCE_DIR}/golden/${oracle}.jsonl $<TARGET_FILE:${program}> ${filter})
  set_tests_properties(oracle.${oracle} PROPERTIES LABELS oracle TIMEOUT 600 SKIP_RETURN_CODE 77)
  weightcast_label_target(${program} oracle)
endfunction()
