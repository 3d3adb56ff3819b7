#include "tools/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/patch/temp_dir.h"
#include "trainer/learner/config.h"

namespace weightcast {
namespace {

/// A program with one subcommand that has options of each kind.
struct Program {
  Program() {
    add_config_option(*command);
    command->add_option("--role", role)->required();
    command->add_option("--hop-delay-ms", hop_delay_ms);
    command->add_flag("--insecure", insecure);
  }
  void parse(std::string arguments) { app.parse(std::move(arguments)); }

  CLI::App app;
  CLI::App* command = app.add_subcommand("daemon");
  std::string role;
  double hop_delay_ms = 0.5;
  bool insecure = false;
};

class ConfigFile : public ::testing::Test {
 protected:
  std::string with(std::string_view toml) { return "daemon --config " + dir_.write("config.toml", toml); }
  TempDir dir_;
  Program program_;
};

TEST_F(ConfigFile, GivesOptionsAndFlags) {
  program_.parse(with("# a comment\nrole = \"worker\"\nhop-delay-ms = 10.5\ninsecure = true\n"));
  EXPECT_EQ(program_.role, "worker");
  EXPECT_EQ(program_.hop_delay_ms, 10.5);
  EXPECT_TRUE(program_.insecure);
}

TEST_F(ConfigFile, RefusesTextsThatWouldBecomeOthers) {
  for (const char* role : {"\"a#b\"", "\"a\\b\"", "'a\"b'"}) {
    try {
      Program().parse(with(std::string("role = ") + role + "\n"));
      FAIL() << "accepted " << role;
    } catch (const CLI::ParseError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("line 1: the value of role has a "));
    }
  }
}

TEST_F(ConfigFile, LeavesFalseFlagsFalse) {
  program_.parse(with("role = \"worker\"\ninsecure = false\n"));
  EXPECT_FALSE(program_.insecure);
}

TEST_F(ConfigFile, YieldsToTheCommandLine) {
  program_.parse(with("role = \"worker\"\nhop-delay-ms = 10.5\n") + " --role origin");
  EXPECT_EQ(program_.role, "origin");
  EXPECT_EQ(program_.hop_delay_ms, 10.5);
}

TEST_F(ConfigFile, IsNotNeeded) {
  program_.parse("daemon --role origin");
  EXPECT_EQ(program_.role, "origin");
}

TEST_F(ConfigFile, RefusesUnknownKeysByName) {
  try {
    program_.parse(with("role = \"worker\"\nuplnk = \"100mbit\"\n"));
    FAIL() << "accepted";
  } catch (const CLI::ParseError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("config.toml line 2: 'uplnk'"));
  }
}

TEST_F(ConfigFile, RefusesSectionsAndItself) {
  EXPECT_THROW(program_.parse(with("[daemon]\nrole = \"worker\"\n")), CLI::ParseError);
  EXPECT_THROW(Program().parse(with("role = \"worker\"\nconfig = \"other.toml\"\n")), CLI::ParseError);
}

TEST_F(ConfigFile, RefusesAMissingFile) {
  EXPECT_THROW(program_.parse("daemon --role origin --config " + dir_.file("nowhere.toml")), CLI::ParseError);
}

TEST_F(ConfigFile, DoesNotReplaceWhatIsRequired) {
  EXPECT_THROW(program_.parse(with("hop-delay-ms = 1.0\n")), CLI::RequiredError);
}

TEST_F(ConfigFile, GivesItemsAsText) {
  const auto items = read_config_items(dir_.write(
      "a.toml", "# comment\nrate = 1e-6\nname = \"a, b\"\nfiles = [\"x\", \"y\"]\non = true\n[task]\ndigits = 2\n"));
  ASSERT_TRUE(items.has_value()) << items.error().message();
  using Item = std::pair<std::string, std::string>;
  EXPECT_THAT(*items, ::testing::ElementsAre(Item("rate", "1e-6"), Item("name", "a, b"), Item("files", "x,y"),
                                             Item("on", "true"), Item("task.digits", "2")));
}

TEST_F(ConfigFile, GivesNoItemsOfAMissingFile) {
  EXPECT_THAT(read_config_items(dir_.file("nowhere.toml")).error().message(), ::testing::HasSubstr("nowhere.toml"));
}

TEST_F(ConfigFile, RefusesTextsThatWouldChange) {
  using ::testing::HasSubstr;
  const auto refusal = [&](std::string_view text) {
    const auto items = read_config_items(dir_.write("a.toml", text));
    return items.has_value() ? "accepted" : items.error().message();
  };
  EXPECT_THAT(refusal("rate = 1\nname = \"a#b\"\n"), HasSubstr("line 2: the value of name has a #"));
  EXPECT_THAT(refusal("name = \"a\\\"b\"\n"), HasSubstr("the value of name has a \\"));
  EXPECT_THAT(refusal("name = 'a\"b'\n"), HasSubstr("the value of name has a \""));
  EXPECT_EQ(refusal("name = \"a\" # \"b#\n# it's\n"), "accepted");
}

TEST_F(ConfigFile, ComesBackFromWhatALearnerPrints) {
  for (const char* value :
       {"runs/first", "a b", " a ", "a,b", "it's", "a=b", "[a]", "{a}", "a;b", "1", "true", "", "%a", "ü"}) {
    const std::vector<Setting> given{{"output_dir", value}, {"task_data", value}, {"task_options.data", value}};
    const auto printed = make_config(given);
    ASSERT_TRUE(printed.has_value()) << value << ": " << printed.error().message();
    const auto items = read_config_items(dir_.write("printed.toml", config_text(*printed)));
    ASSERT_TRUE(items.has_value()) << value << ": " << items.error().message();
    const auto read = make_config(*items);
    ASSERT_TRUE(read.has_value()) << value << ": " << read.error().message();
    EXPECT_EQ(read->output_dir, value);
    EXPECT_EQ(read->task_options.at("data"), value);
    EXPECT_EQ(config_text(*read), config_text(*printed));
  }
  for (const char* value : {"a#b", "a\"b", "a\\b", "a\nb"}) {
    const auto config = make_config(std::vector<Setting>{{"output_dir", value}});
    ASSERT_FALSE(config.has_value()) << value;
    EXPECT_THAT(config.error().message(), ::testing::HasSubstr("output_dir is "));
  }
}

}  // namespace
}  // namespace weightcast
