#include "tools/shell/terminal.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace weightcast {
namespace {

TEST(Terminal, FitsTextToItsWindow) {
  EXPECT_EQ(fitted("abcdef\nb\n", 5, 4), "abcd\nb\n");
  EXPECT_EQ(fitted("a\nb\nc\n", 3, 4), "a\nb\nc\n");
  EXPECT_EQ(fitted("a\nb\nc\nd\n", 3, 80), "a\nb\n... 2 more lines\n");
  EXPECT_EQ(fitted("", 3, 80), "");
}

TEST(Terminal, ColoursRemarks) {
  EXPECT_EQ(
      coloured_remarks("NODE  STATE\na  idle\nb  idle  ! no room\nc  idle  !! lied  ! no room\n! a cannot reach b\n"),
      "NODE  STATE\na  idle\nb  idle\x1b[33m  ! no room\x1b[0m\nc  idle\x1b[31m  !! lied  ! no room\x1b[0m\n"
      "\x1b[33m! a cannot reach b\x1b[0m\n");
}

TEST(Terminal, HasNoColoursInAFile) { EXPECT_EQ(coloured_for(stdout, Colour::kRed, "a") == "a", !has_colour(stdout)); }

}  // namespace
}  // namespace weightcast
