#include "trainer/tasks/program/line_reader.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

TEST(LineReader, GivesWholeLinesWhereverTheBytesAreCut) {
  const std::string text = "one\n\nthree\r\nrest";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    LineReader reader(10);
    std::vector<std::string> lines;
    for (const std::string& part : {text.substr(0, cut), text.substr(cut)}) {
      reader.add(part);
      for (;;) {
        const auto line = reader.next();
        ASSERT_TRUE(line.has_value());
        if (!*line) break;
        lines.push_back(**line);
      }
    }
    EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "three\r"})) << cut;
    EXPECT_EQ(reader.rest(), "rest") << cut;
  }
}

TEST(LineReader, RefusesALineThatIsTooLongBeforeItEnds) {
  LineReader reader(4);
  reader.add("1234");
  EXPECT_TRUE(reader.next().has_value());
  reader.add("\n");
  EXPECT_EQ(**reader.next(), "1234");
  reader.add("12345");
  const auto refused = reader.next();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::kTooLarge);
  EXPECT_EQ(refused.error().detail, "it said a line of more than 4 bytes, which begins with '12345'");
}

TEST(LineReader, RefusesALineThatIsTooLongAndWhole) {
  LineReader reader(4);
  reader.add("12345\n");
  EXPECT_EQ(reader.next().error().code, Errc::kTooLarge);
}

TEST(LineReader, ShowsNoBytesThatATerminalObeys) {
  EXPECT_EQ(beginning_of("\x1b[2J\xff"), "'\\x1b[2J\\xff'");
  EXPECT_EQ(beginning_of(std::string(200, 'x')), "'" + std::string(80, 'x') + "...'");
}

}  // namespace
}  // namespace weightcast
