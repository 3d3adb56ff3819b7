#include "tools/shell/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tools/shell/command_tree.h"
#include "tools/shell/completion.h"

namespace weightcast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Described : public ::testing::Test {
 protected:
  Described() {
    app_.set_version_flag("-V,--version", "1.2");
    CLI::App* const publish = app_.add_subcommand("publish", "Publish a snapshot");
    publish->add_option("PATH", path_, "What to publish")->required();
    publish->add_option("--pack", pack_, "Whether it's packed")->check(CLI::IsMember({"auto", "never"}))->capture_default_str();
    publish->add_option_group("how often")
        ->add_option("-n,--count", count_, ".5 is not\\allowed")
        ->check(CLI::Range(1, 9));
    publish->add_option("--secret", path_, "for tests")->group("");
    app_.add_subcommand("hidden", "for tests")->group("");
    app_.add_subcommand("keys", "Make keys")->add_subcommand("issue", "Make those of a worker");
  }

  CLI::App app_{"program: what it is for", "program"};
  std::string path_, pack_ = "auto";
  int count_ = 0;
};

TEST_F(Described, HasOptionsOfGroupsAndNothingHidden) {
  const DescribedCommand program = describe(app_);
  ASSERT_EQ(program.commands.size(), 2u);
  const DescribedCommand& publish = program.commands[0];
  EXPECT_EQ(publish.name, "publish");
  ASSERT_EQ(publish.positionals.size(), 1u);
  EXPECT_TRUE(publish.positionals[0].required);
  ASSERT_EQ(publish.options.size(), 3u);  // with --help
  EXPECT_THAT(publish.options[1].choices, ElementsAre("auto", "never"));
  EXPECT_EQ(publish.options[1].default_value, "auto");
  EXPECT_THAT(publish.options[2].names, ElementsAre("-n", "--count"));
  EXPECT_EQ(publish.options[2].range, "[1 - 9]");
  EXPECT_EQ(program.commands[1].commands[0].name, "issue");
}

TEST_F(Described, PageSaysWhatTheHelpSaysAndEscapesIt) {
  const std::string page = manual_page(describe(app_), "1.2");
  EXPECT_THAT(page, HasSubstr(".SH NAME\nprogram \\- what it is for\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-pack\\fR \\fITEXT\\fR\nWhether it's packed. One of auto, never. Default: auto."));
  EXPECT_THAT(page, HasSubstr("\n\\&.5 is not\\eallowed. In [1 \\- 9].\n"));
  EXPECT_THAT(page, HasSubstr("\\fBprogram keys issue\\fR"));
  EXPECT_THAT(page, Not(HasSubstr("for tests")));
}

// An apostrophe in a text ends no string of the shell's.
TEST_F(Described, ScriptsQuoteTexts) {
  EXPECT_THAT(completion_script(describe(app_), Shell::kZsh), HasSubstr("'--pack:Whether it'\\''s packed'"));
  EXPECT_THAT(completion_script(describe(app_), Shell::kFish), HasSubstr("-x -a 'auto never' -d 'Whether it\\'s packed'"));
  EXPECT_THAT(completion_script(describe(app_), Shell::kBash), HasSubstr("' publish --pack') COMPREPLY=($(compgen -W 'auto never'"));
}

}  // namespace
}  // namespace weightcast
