#include "base/digest/instruction_set.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

namespace weightcast {
namespace {

using enum InstructionSet;

TEST(InstructionSets, AreNamedInTheirOrder) {
  for (const InstructionSet set : {kBaseline, kAvx2, kAvx512, kAvx512Vbmi2, kAmx}) {
    EXPECT_EQ(at_most(kAmx, to_string(set)), set);
    EXPECT_EQ(at_most(set, to_string(set)), set);
  }
}

TEST(InstructionSets, AGreaterOneThanTheProcessorsAndAnUnknownOneChangeNothing) {
  EXPECT_EQ(at_most(kAvx2, "amx"), kAvx2);
  EXPECT_EQ(at_most(kAvx2, ""), kAvx2);
  EXPECT_EQ(at_most(kAvx2, "AVX"), kAvx2);
  EXPECT_EQ(at_most(kBaseline, "avx2"), kBaseline);
}

// Each in a process of its own, since the first call decides.
TEST(InstructionSetsDeathTest, TheEnvironmentNamesASmallerOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_with_set = [](const char* named) {
    ::setenv("WEIGHTCAST_KERNELS", named, 1);
    std::exit(static_cast<int>(instruction_set()));
  };
  const auto at_most_avx2 = [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) <= int(kAvx2); };
  EXPECT_EXIT(exit_with_set("baseline"), testing::ExitedWithCode(static_cast<int>(kBaseline)), "");
  EXPECT_EXIT(exit_with_set("avx2"), at_most_avx2, "");
}

}  // namespace
}  // namespace weightcast
