#include "trainer/config/generator_lags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace weightcast {
namespace {

using testing::HasSubstr;

TEST(GeneratorLags, ReadsOneNumberOrSeveral) {
  const auto one = GeneratorLags::parse("3");
  ASSERT_TRUE(one.has_value()) << one.error().message();
  EXPECT_EQ(one->least(), 3u);
  EXPECT_EQ(one->most(), 3u);
  EXPECT_EQ(one->of_group(7, 100), 3u);
  const auto several = GeneratorLags::parse("2,1,64");
  ASSERT_TRUE(several.has_value()) << several.error().message();
  EXPECT_EQ(several->least(), 1u);
  EXPECT_EQ(several->most(), 64u);
}

TEST(GeneratorLags, DrawsEachAsOftenAsItStandsThere) {
  const GeneratorLags lags = GeneratorLags::parse("1,2,2,5").value();
  std::map<std::uint64_t, int> drawn, other;
  for (std::uint64_t group = 0; group < 4000; ++group) {
    ++drawn[lags.of_group(42, group)];
    other[lags.of_group(42, group)] += lags.of_group(42, group) == lags.of_group(43, group) ? 1 : 0;
  }
  ASSERT_EQ(drawn.size(), 3u);
  EXPECT_NEAR(drawn[1], 1000, 120);
  EXPECT_NEAR(drawn[2], 2000, 120);
  EXPECT_NEAR(drawn[5], 1000, 120);
  EXPECT_LT(other[2], 1200) << "another seed draws others";
}

TEST(GeneratorLags, RefusesWhatIsNoLag) {
  std::string many = "0";
  for (int i = 0; i < 256; ++i) many += ",0";
  for (const std::string& text : {std::string(), std::string(","), std::string("-1"), std::string("1.5"),
                                  std::string("65"), std::string("1,x"), std::string("1 2"), many}) {
    const auto lags = GeneratorLags::parse(text);
    ASSERT_FALSE(lags.has_value()) << text;
    EXPECT_THAT(lags.error().message(), HasSubstr("a whole number, 0 to 64, or up to 256 of them"));
  }
}

}  // namespace
}  // namespace weightcast
