#include "base/exception_error.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace weightcast {
namespace {

Error error_of(const std::exception& exception) { return exception_error(exception, "step 3", "buy some"); }

TEST(ExceptionError, SpeaksOfMemoryWhereThatIsMissing) {
  const Error none = error_of(std::bad_alloc());
  EXPECT_EQ(none.code, Errc::kTooLarge);
  EXPECT_EQ(none.detail, "step 3: std::bad_alloc; buy some");
  for (const char* words :
       {"[enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you tried "
        "to allocate 4 bytes. Error code 12 (Cannot allocate memory)\nat line 1",
        "CUDA out of memory. Tried to allocate 2.00 GiB", "CUDA error: out of memory"}) {
    EXPECT_EQ(error_of(std::runtime_error(words)).code, Errc::kTooLarge) << words;
  }
}

TEST(ExceptionError, SpeaksOfNothingElseElsewhere) {
  const Error error =
      error_of(std::runtime_error("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)\nat line 1"));
  EXPECT_EQ(error.code, Errc::kIo);
  EXPECT_EQ(error.detail, "step 3: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)");
}

}  // namespace
}  // namespace weightcast
