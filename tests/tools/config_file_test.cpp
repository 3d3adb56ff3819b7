#include "tools/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/patch/temp_dir.h"

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
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'uplnk'"));
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

}  // namespace
}  // namespace weightcast
