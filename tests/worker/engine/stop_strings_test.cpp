#include "worker/engine/sampling/stop_strings.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/random.h"

namespace weightcast {
namespace {

TEST(StopStrings, FindsOneThatTokensDivide) {
  StopStrings stops({"\n\n"});
  EXPECT_FALSE(stops.append("a\n").has_value());
  const auto found = stops.append("\nb");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->string, 0u);
  EXPECT_EQ(found->text_bytes, 1u);
}

TEST(StopStrings, TakesTheOneThatIsCompleteFirst) {
  const auto found = StopStrings({"bcd", "bc", "abc"}).append("xabcde");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->string, 2u);
  EXPECT_EQ(found->text_bytes, 1u);
}

TEST(StopStrings, BeginsAnew) {
  StopStrings stops({"ab"});
  EXPECT_FALSE(stops.append("xa").has_value());
  stops.clear();
  EXPECT_FALSE(stops.append("b").has_value());
  EXPECT_EQ(stops.append("ab")->text_bytes, 1u);
}

RC_GTEST_PROP(StopStrings, FindsWhatAWholeSearchFinds, (std::uint64_t seed)) {
  Random random(seed);
  const auto text = [&](std::size_t bytes) {
    std::string result;
    for (std::size_t i = 0; i < bytes; ++i) result += static_cast<char>('a' + random.below(2));
    return result;
  };
  std::vector<std::string> strings;
  for (std::uint64_t i = 1 + random.below(3); i-- > 0;) strings.push_back(text(3 + random.below(5)));
  StopStrings stops(strings);
  std::string all;
  for (int i = 0; i < 30; ++i) {
    const std::string piece = text(random.below(6));
    all += piece;
    std::size_t end = std::string::npos;
    std::size_t begin = 0;
    for (const std::string& string : strings) {
      const std::size_t found = all.find(string);
      if (found == std::string::npos) continue;
      const std::size_t found_end = found + string.size();
      if (found_end < end || (found_end == end && found < begin)) {
        end = found_end;
        begin = found;
      }
    }
    const auto found = stops.append(piece);
    RC_ASSERT(found.has_value() == (end != std::string::npos));
    if (!found) continue;
    RC_ASSERT(found->text_bytes == begin);
    RC_ASSERT(all.substr(begin, end - begin) == strings[found->string]);
    return;
  }
}

}  // namespace
}  // namespace weightcast
