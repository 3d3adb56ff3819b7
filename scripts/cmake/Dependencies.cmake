# Every library is a Debian 12 package; ./run installs them. The reasons stand in docs/decisions/0011-libraries.md.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tl-expected REQUIRED)
if(WEIGHTCAST_CLIENT_ONLY)
  return()
endif()
if(WEIGHTCAST_STATIC OR CMAKE_BUILD_TYPE STREQUAL "Release")
  # Debian has no static libfmt: its headers are taken, and the linker leaves out the shared one, since nothing uses it. All
  # presets that are installed compile alike, so that ccache has for one what another has compiled: a wheel after
  # ./run build or ./run demo costs little more than linking.
  target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY=1)
  add_compile_options(-ffunction-sections -fdata-sections)
endif()
set(libuv libuv)
if(WEIGHTCAST_STATIC)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS ON)
  set(libuv libuv-static)
  add_link_options(LINKER:--as-needed LINKER:--gc-sections)
  if(WEIGHTCAST_TORCH)
    # LibTorch shares the system's C++ library with the program. It exports functions of a libuv of its own: neither takes
    # the other's.
    add_link_options(LINKER:--exclude-libs,libuv.a)
    # GCC 12's C++ library has one function under a version (GLIBCXX_3.4.30) that RHEL 9 lacks: its file is linked in.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE archive
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${CMAKE_AR} x ${archive} condition_variable.o WORKING_DIRECTORY ${PROJECT_BINARY_DIR}
                    COMMAND_ERROR_IS_FATAL ANY)
    add_link_options(${PROJECT_BINARY_DIR}/condition_variable.o)
  else()
    add_link_options(-static-libstdc++)
  endif()
endif()
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)

if(WEIGHTCAST_TRANSPORT)
  find_package(CLI11 REQUIRED)
  # Headers alone: tools/shell/config_file.cpp compiles them.
  find_path(WEIGHTCAST_TOMLPLUSPLUS toml++/toml.h REQUIRED DOC "toml++, as headers")
  # Not the older ones that a LibTorch of the registry has beside its own.
  find_path(Protobuf_INCLUDE_DIR google/protobuf/message.h NO_CMAKE_PATH)
  find_program(Protobuf_PROTOC_EXECUTABLE protoc NO_CMAKE_PATH)
  find_package(Protobuf REQUIRED)
  find_package(Boost 1.74 REQUIRED)
  pkg_check_modules(CARES REQUIRED IMPORTED_TARGET libcares)
  pkg_check_modules(LIBUV REQUIRED IMPORTED_TARGET ${libuv})
  pkg_check_modules(LIBURING REQUIRED IMPORTED_TARGET liburing)
  find_file(WEIGHTCAST_D3 d3.min.js PATHS /usr/share/nodejs/d3/dist NO_DEFAULT_PATH DOC "D3 5, as one file")
  if(NOT WEIGHTCAST_D3)
    message(FATAL_ERROR "/usr/share/nodejs/d3/dist/d3.min.js was not found: install Debian's node-d3, or set WEIGHTCAST_D3 to that file of D3 5")
  endif()
endif()
if(WEIGHTCAST_TORCH)
  # Debian's, or another one that CMAKE_PREFIX_PATH names: a torch of the Python registry has share/cmake/Torch.
  # With CUDA it asks for architectures, and CMake 3.25 cannot try which the host has. No file of ours is compiled by its
  # flags: patch/cuda has its own.
  if(NOT DEFINED TORCH_CUDA_ARCH_LIST)
    set(TORCH_CUDA_ARCH_LIST "8.0+PTX")
  endif()
  # It is a shared library in any case.
  set(CMAKE_FIND_LIBRARY_SUFFIXES .so .a)
  # After Protobuf: the registry's defines an empty target of that name where there is none.
  find_package(Torch 1.13 REQUIRED)
endif()
if(WEIGHTCAST_BENCH AND WEIGHTCAST_TRANSPORT)
  pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
endif()
if(BUILD_TESTING)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()
