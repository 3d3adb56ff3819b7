set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

option(BUILD_TESTING "Build the tests" ON)
option(WEIGHTCAST_ASSERTIONS "Check internal invariants in hot paths too" OFF)
option(WEIGHTCAST_FUZZ "Build the fuzz targets with libFuzzer (needs clang)" OFF)
set(WEIGHTCAST_SANITIZE "" CACHE STRING "Sanitizers to build with, as -fsanitize takes them")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
                    -Woverloaded-virtual -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false overflows inside inlined std::string and protobuf code at -O2 and above.
  add_compile_options(-Wno-stringop-overflow -Wno-restrict -Wno-array-bounds -Wno-maybe-uninitialized)
endif()
if(WEIGHTCAST_SANITIZE)
  add_compile_options(-fsanitize=${WEIGHTCAST_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1 -g1)
  add_link_options(-fsanitize=${WEIGHTCAST_SANITIZE})
endif()
if(WEIGHTCAST_ASSERTIONS)
  add_compile_definitions(WEIGHTCAST_ASSERTIONS=1)
endif()

find_program(WEIGHTCAST_CCACHE ccache)
if(WEIGHTCAST_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${WEIGHTCAST_CCACHE})
endif()
