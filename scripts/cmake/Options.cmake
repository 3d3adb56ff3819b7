set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

option(BUILD_TESTING "Build the tests" ON)
option(WEIGHTCAST_BENCH "Build weightcast-bench, with the other systems' codecs that it measures" ON)
option(WEIGHTCAST_ASSERTIONS "Check internal invariants in hot paths too" OFF)
option(WEIGHTCAST_FUZZ "Build the fuzz targets with libFuzzer (needs clang)" OFF)
option(WEIGHTCAST_UNITY "Compile sixteen files at a time: half the work for all files, more for a single one" OFF)
option(WEIGHTCAST_TORCH "Build the learner, which takes LibTorch; without it only its parts that need none" ON)
option(WEIGHTCAST_TRANSPORT "Build daemons, workers and the learner's loop; without, what a GPU host measures: trainer/ but for its loop" ON)
option(WEIGHTCAST_CLIENT_ONLY "Build the client library and nothing else: it needs a compiler and four header-only libraries" OFF)
option(WEIGHTCAST_STATIC "Link all libraries but the C library into the programs, for systems with others or none" OFF)
option(WEIGHTCAST_WERROR "Warnings are errors: for who changes the code, not for other compilers" OFF)
set(WEIGHTCAST_SANITIZE "" CACHE STRING "Sanitizers to build with, as -fsanitize takes them")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual)
if(WEIGHTCAST_WERROR)
  add_compile_options(-Werror)
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wshadow)
else()
  # What one file of a batch declares is no shadow in the next one. The same for files that are compiled alone, which
  # continuous integration does not do.
  add_compile_options(-Wshadow=local)
  # GCC 12 reports false overflows inside inlined std::string and protobuf code at -O2 and above.
  add_compile_options(-Wno-stringop-overflow -Wno-restrict -Wno-array-bounds -Wno-maybe-uninitialized)
endif()
if(WEIGHTCAST_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
  # An anonymous namespace in a batch is its own.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-subobject-linkage)
  endif()
endif()
if(WEIGHTCAST_SANITIZE)
  # AddressSanitizer stops at a null pointer and at most objects of another type without these three, which take a tenth
  # to a fifth of the compiler's time.
  set(without "")
  if(WEIGHTCAST_SANITIZE MATCHES "undefined")
    set(without -fno-sanitize=null,object-size,vptr)
  endif()
  add_compile_options(-fsanitize=${WEIGHTCAST_SANITIZE} ${without} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1 -g1)
  add_link_options(-fsanitize=${WEIGHTCAST_SANITIZE})
endif()
if(WEIGHTCAST_ASSERTIONS)
  add_compile_definitions(WEIGHTCAST_ASSERTIONS=1)
endif()

find_program(WEIGHTCAST_CCACHE ccache)
if(WEIGHTCAST_CCACHE)
  # What one checkout has compiled, another one need not: paths below the checkout count as relative ones.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${WEIGHTCAST_CCACHE})
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>")
endif()
