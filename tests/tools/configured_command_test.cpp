#include "tools/shell/configured_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tests/patch/temp_dir.h"
#include "tools/daemon_settings.h"
#include "tools/shell/command_tree.h"
#include "trainer/config/config.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A program whose one command is the daemon, which runs nothing here.
class DaemonCommand : public testing::Test {
 protected:
  DaemonCommand() { add_setting_options(*command_, daemon_fields(checked_), "docs/SETTINGS.md", given_); }

  Result<DaemonSettings> parse(std::string arguments) {
    app_.parse("daemon " + std::move(arguments));
    WC_ASSIGN(const std::vector<Setting> settings, given_.all());
    return make_daemon_settings(settings);
  }
  std::string with(std::string_view toml) { return "--config " + dir_.write("config.toml", toml) + " "; }

  TempDir dir_;
  DaemonSettings checked_;
  GivenSettings given_;
  CLI::App app_;
  CLI::App* command_ = app_.add_subcommand("daemon");
};

TEST_F(DaemonCommand, TakesFlagsOfEachKind) {
  const DaemonSettings s =
      parse(
          "--role worker --listen [::1]:7400 --uplink 12.5mbit --no-pace --keep 3 --topology chain "
          "--hop-delay-ms 10.5 --memory-max 3GiB --allow-address '10.7.*' h --log-format json "
          "--snapshot-max 500kB --insecure=false")
          .value();
  EXPECT_EQ(s.node.role, Role::kWorker);
  EXPECT_EQ(s.node.listen.to_string(), "[::1]:7400");
  EXPECT_EQ(s.node.uplink, Rate::bits(12.5e6));
  EXPECT_FALSE(s.node.pace);
  EXPECT_EQ(s.node.versions_kept, 3u);
  EXPECT_EQ(s.node.topology, Topology::kChain);
  EXPECT_EQ(s.node.hop_delay, std::chrono::microseconds(10'500));
  EXPECT_EQ(s.node.memory_bytes_max, 3 * kGiB);
  EXPECT_EQ(s.node.snapshot_bytes_max, 500'000u);
  EXPECT_THAT(s.node.addresses_allowed, ElementsAre("10.7.*", "h"));
  EXPECT_EQ(s.operators.log_format, LogFormat::kJson);
  EXPECT_FALSE(s.node.insecure);
}

TEST_F(DaemonCommand, TakesTheSameFromAFileAndTheCommandLineFirst) {
  const DaemonSettings s =
      parse(
          with(
              "role = \"worker\"\nkeep = 5\nno-patches = true\nhop-delay-ms = 10\nallow-address = [\"a\", \"b,c\"]\n") +
          "--role origin --keep 7")
          .value();
  EXPECT_FALSE(s.node.patches);
  EXPECT_EQ(s.node.hop_delay, std::chrono::milliseconds(10));
  EXPECT_THAT(s.node.addresses_allowed, ElementsAre("a", "b,c"));
  EXPECT_EQ(s.node.role, Role::kOrigin);
  EXPECT_EQ(s.node.versions_kept, 7u);
}

TEST_F(DaemonCommand, TakesTheLastOfSeveral) {
  const DaemonSettings s =
      parse("--role worker --keep 3 --role=origin --keep=7 --insecure --insecure=false --uplink 1mbit --uplink 2mbit")
          .value();
  EXPECT_EQ(s.node.role, Role::kOrigin);
  EXPECT_EQ(s.node.versions_kept, 7u);
  EXPECT_FALSE(s.node.insecure);
  EXPECT_EQ(s.node.uplink, Rate::bits(2e6));
}

// It is not taken for the directory.
TEST_F(DaemonCommand, TakesNoWordBehindAFlagsValue) {
  EXPECT_THROW((void)parse("--state d keep=7"), CLI::ExtrasError);
  EXPECT_THROW((void)parse("--keep 3 4 --state d"), CLI::ExtrasError);
}

TEST_F(DaemonCommand, SaysWhatStandsWhereInAFile) {
  for (const auto& [toml, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"role = \"worker\"\nuplnk = \"1gbit\"\n",
            "line 2: 'uplnk' is no key of the configuration; the nearest is 'uplink'"},
           {"role = \"worker\"\n\nkeep = 0\n", "line 3: keep is '0'; it is a whole number, 1 to 1000"},
           {"role = \"orign\"\n", "line 1: 'orign' is no role; the nearest is 'origin'"},
           {"[daemon]\nrole = \"worker\"\n", "line 2: 'daemon.role' is no key"},
           {"config = \"other.toml\"\n", "line 1: 'config' is no key"},
           {"keep = 2\n", "role is empty; set it"}}) {
    const auto given = parse_settings(toml, "config.toml");
    ASSERT_TRUE(given.has_value()) << toml;
    const auto made = make_daemon_settings(*given);
    ASSERT_FALSE(made.has_value()) << toml;
    EXPECT_THAT(made.error().detail, HasSubstr(why));
  }
}

TEST_F(DaemonCommand, RefusesFlagsAsUsage) {
  for (const char* flags : {"--role king", "--keep 0", "--uplink fast", "--listen here", "--hop-delay-ms nan"}) {
    EXPECT_THROW(parse(flags), CLI::ValidationError) << flags;
  }
  EXPECT_THROW(parse("--uplnk 1gbit"), CLI::ExtrasError);
}

TEST_F(DaemonCommand, WhatItPrintsGivesTheSameAgain) {
  DaemonSettings s =
      parse(
          "--role origin --uplink 333.3mbit --downlink 12MiB/s --memory-max 3GiB --allow-address a b --no-pace "
          "--http [::1]:80 --single-copy-wait 0.1 --archive 'a\"#b' --name x")
          .value();
  const std::string printed = settings_text(daemon_fields(s));
  EXPECT_THAT(printed, HasSubstr("uplink = \"333.3mbit\"\n"));
  EXPECT_THAT(printed, HasSubstr("allow-address = [\"a\", \"b\"]\n"));
  const auto settings = parse_settings(printed, "printed.toml");
  ASSERT_TRUE(settings.has_value()) << settings.error().detail;
  auto again = make_daemon_settings(*settings);
  ASSERT_TRUE(again.has_value()) << again.error().detail;
  EXPECT_EQ(settings_text(daemon_fields(*again)), printed);
  EXPECT_EQ(again->node.uplink, s.node.uplink);
  EXPECT_EQ(again->node.archive, "a\"#b");
}

TEST_F(DaemonCommand, HelpManualAndCompletionKnowChoicesAndBounds) {
  const DescribedCommand daemon = describe(*command_);
  const auto option = [&](std::string_view name) {
    return *std::ranges::find_if(daemon.options, [&](const DescribedOption& o) { return o.names.back() == name; });
  };
  EXPECT_THAT(option("--topology").choices, ElementsAre("auto", "star", "chain", "tree", "striped"));
  EXPECT_EQ(option("--topology").default_value, "auto");
  EXPECT_EQ(option("--keep").range, "[1 to 1000]");
  EXPECT_EQ(option("--keep").value, "UINT");
  EXPECT_EQ(option("--insecure").value, "");
}

TEST(SettingFields, ReadEachChoiceAndDefaultAsTheyWriteIt) {
  DaemonSettings daemon;
  LearnerConfig learner;
  for (const auto& fields : {daemon_fields(daemon), config_fields(learner)}) {
    for (const SettingField& field : fields) {
      std::vector<std::string> values(field.choices().begin(), field.choices().end());
      if (field.kind() != SettingKind::kNamed) values.push_back(field.value());
      for (const std::string& value : values) {
        ASSERT_TRUE(field.set(value).has_value()) << field.name() << " = " << value;
        EXPECT_EQ(field.value(), value) << field.name();
      }
    }
  }
}

TEST(DaemonDocument, HasTheTableOfTheDaemonsSettings) {
  std::ifstream in(WEIGHTCAST_SETTINGS_DOCUMENT);
  const std::string document{std::istreambuf_iterator<char>(in), {}};
  DaemonSettings defaults;
  EXPECT_THAT(document, HasSubstr(settings_table(daemon_fields(defaults))))
      << "docs/SETTINGS.md: put the output of `weightcast daemon --list-keys` there";
}

TEST(DaemonSettings, NamesWhatMeansNothingToItsRole) {
  const auto foreign = [](std::string_view role, std::vector<Setting> settings) {
    settings.push_back({"role", std::string(role)});
    return make_daemon_settings(settings)->of_other_role;
  };
  EXPECT_EQ(foreign("origin", {{"standby", "true"}, {"topology", "chain"}, {"keep", "3"}}),
            std::vector<std::string>{"standby"});
  EXPECT_EQ(foreign("worker", {{"standby", "true"}, {"topology", "chain"}, {"no-patches", "true"}}),
            (std::vector<std::string>{"topology", "no-patches"}));
  // As --print-config writes it.
  EXPECT_EQ(foreign("worker", {{"topology", "auto"}}), std::vector<std::string>{});
}

}  // namespace
}  // namespace weightcast
