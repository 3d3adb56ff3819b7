#include "tools/shell/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/patch/temp_dir.h"
#include "trainer/config/config.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string refusal(std::string_view text) {
  const auto settings = parse_settings(text, "a.toml");
  return settings.has_value() ? "accepted" : settings.error().detail;
}

TEST(ConfigFile, GivesSettingsAsTextWithTheirLines) {
  const auto settings = parse_settings(
      "# comment\nrate = 1e-6\nname = \"a, b\"\nfiles = [\n  \"x\", # one\n  \"y\"]\non = true\n[task]\ndigits = "
      "1_000\n",
      "a.toml");
  ASSERT_TRUE(settings.has_value()) << settings.error().message();
  EXPECT_THAT(*settings,
              ElementsAre(Setting{"rate", "1e-06", "a.toml line 2"}, Setting{"name", "a, b", "a.toml line 3"},
                          Setting{"files", "x,y", "a.toml line 4"}, Setting{"on", "true", "a.toml line 7"},
                          Setting{"task.digits", "1000", "a.toml line 9"}));
}

TEST(ConfigFile, TakesEveryCharacterOfAText) {
  const auto settings = parse_settings("a = \"x#y\\\"z\\\\\" # \"b#\nb = 'c:\\d\"#'\nc = \"\\u00fc\"\n", "a.toml");
  ASSERT_TRUE(settings.has_value()) << settings.error().message();
  EXPECT_EQ(settings->at(0).value, "x#y\"z\\");
  EXPECT_EQ(settings->at(1).value, "c:\\d\"#");
  EXPECT_EQ(settings->at(2).value, "\xc3\xbc");
}

TEST(ConfigFile, SaysTheLineAndTheKeyOfWhatIsNoToml) {
  EXPECT_THAT(refusal("a = 1\n\nrole = worker\n"), StartsWith("a.toml line 3: role is no TOML: "));
  EXPECT_THAT(refusal("a = 1\n\nrole = worker\n"), HasSubstr("texts stand in quotes"));
  EXPECT_THAT(refusal("a = 1\n[\n"), StartsWith("a.toml line 2: no TOML: "));
  EXPECT_THAT(refusal("a = 1\na = 2\n"), StartsWith("a.toml line 2: a is no TOML: "));
  EXPECT_THAT(refusal("a = \"\xff\"\n"), StartsWith("a.toml line 1: "));
}

TEST(ConfigFile, RefusesValuesThatAreNoSettings) {
  EXPECT_THAT(refusal("a = 1\nday = 2026-11-24\n"), HasSubstr("line 2: the value of day is no text, number"));
  EXPECT_THAT(refusal("a = [[1]]\n"), HasSubstr("the value of a is no text, number"));
}

TEST(ConfigFile, BoundsWhatItParses) {
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i) key += ".a";
  EXPECT_THAT(refusal("b = 1\n[" + key + "]\n"), HasSubstr("line 2: more than 512 dots"));
  EXPECT_THAT(refusal("a = " + std::string(1000, '[') + std::string(1000, ']')), HasSubstr("line 1"));
  const TempDir dir;
  EXPECT_THAT(read_settings(dir.write("large.toml", std::string(1 << 20, '\n'))).error().detail,
              HasSubstr("large.toml"));
}

TEST(ConfigFile, NamesAFileThatIsMissing) {
  const TempDir dir;
  const auto settings = read_settings(dir.file("nowhere.toml"));
  ASSERT_FALSE(settings.has_value());
  EXPECT_EQ(settings.error().op, Op::kConfigure);
  EXPECT_EQ(settings.error().detail, dir.file("nowhere.toml") + ": No such file or directory");
}

TEST(ConfigFile, ComesBackFromWhatALearnerPrints) {
  for (const char* value :
       {"runs/first", "a b", " a ", "a,b",      "it's", "a=b",  "[a]",  "{a}",     "a;b", "1",
        "true",       "",    "%a",  "\xc3\xbc", "a#b",  "a\"b", "a\\b", "\\u0041", "a.b", "a\\,b"}) {
    const std::vector<Setting> given{{"output_dir", value},
                                     {"task_data", value},
                                     {"task_options.data", value},
                                     {"rollout_files", join_items(std::vector<std::string>{value, "x"})}};
    const auto printed = make_config(given);
    ASSERT_TRUE(printed.has_value()) << value << ": " << printed.error().message();
    const auto settings = parse_settings(config_text(*printed), "printed.toml");
    ASSERT_TRUE(settings.has_value()) << value << ": " << settings.error().message();
    const auto read = make_config(*settings);
    ASSERT_TRUE(read.has_value()) << value << ": " << read.error().message();
    EXPECT_EQ(read->output_dir, value);
    EXPECT_EQ(read->task_options.at("data"), value);
    EXPECT_EQ(read->rollout_files, printed->rollout_files);
    EXPECT_EQ(read->rollout_files.front(), *value == 0 ? "x" : value);
    EXPECT_EQ(config_text(*read), config_text(*printed));
  }
  for (const char* value : {"a\nb", "a\xff"}) {
    const auto config = make_config(std::vector<Setting>{{"output_dir", value}});
    ASSERT_FALSE(config.has_value()) << value;
    EXPECT_THAT(config.error().message(), HasSubstr("output_dir is "));
  }
}

}  // namespace
}  // namespace weightcast
