#include "base/settings/nearest_name.h"

#include <gtest/gtest.h>

#include <array>

namespace weightcast {
namespace {

using namespace std::string_view_literals;

constexpr std::array kNames{"arithmetic"sv, "gsm8k"sv, "sokoban"sv};

TEST(NearestName, FindsTheLeastEditDistance) {
  EXPECT_EQ(nearest_name("gsm8", kNames), "gsm8k");
  EXPECT_EQ(nearest_name("sokobann", kNames), "sokoban");
  EXPECT_EQ(nearest_name("arithmetics", kNames), "arithmetic");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(NearestName, IsNoneThatIsFar) {
  EXPECT_EQ(nearest_name("gsm", kNames), "gsm8k");
  EXPECT_EQ(nearest_name("gs", kNames), "");
  EXPECT_EQ(nearest_name("poker", kNames), "");
  EXPECT_EQ(unknown_name("task", "poker", kNames), "'poker' is no task (all: arithmetic, gsm8k, sokoban)");
}

TEST(NearestName, RefusalNamesEverything) {
  EXPECT_EQ(unknown_name("task", "gsm\n8k", kNames),
            "'gsm\\n8k' is no task; the nearest is 'gsm8k' (all: arithmetic, gsm8k, sokoban)");
}

TEST(NearestName, TakesTextOfAnyLength) {
  EXPECT_LT(unknown_name("task", std::string(1 << 20, 'g'), kNames).size(), 200u);
}

}  // namespace
}  // namespace weightcast
