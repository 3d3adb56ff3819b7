#include "tools/shell/run_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <string>
#include <vector>

#include "base/settings/log_line.h"
#include "base/settings/log_writer.h"
#include "tools/shell/configured_command.h"

namespace weightcast {
namespace {

/// What a captured stderr has, all of it: the log is written by a thread of its own.
std::string captured_log() {
  flush_log(std::chrono::seconds(60));
  return testing::internal::GetCapturedStderr();
}

int run(CLI::App& app, std::vector<std::string> words, const CommandBody& body) {
  words.insert(words.begin(), "program");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return run_commands(app, body, int(arguments.size()), arguments.data());
}

/// With a program of its own, since a program runs once.
int run(std::vector<std::string> words, const CommandBody& body) {
  CLI::App app("", "program");
  app.add_subcommand("publish");
  return run(app, std::move(words), body);
}

/// The same with a command that has a log.
int run_logged(std::vector<std::string> words, const CommandBody& body) {
  CLI::App app("", "program");
  LogFormat format = LogFormat::kText;
  const std::vector<SettingField> fields{{"log-format", &format, ""}};
  add_setting_flags(*app.add_subcommand("run"), fields);
  return run(app, std::move(words), body);
}

TEST(RunCommands, EndsWithOneLineWhereALibraryThrows) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({}, []() -> Status { throw std::runtime_error("no bytes\nof many"); }), 1);
  EXPECT_EQ(captured_log(), "program: cannot configure: a library says: no bytes\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({}, []() -> Status { throw std::bad_alloc(); }), 1);
  EXPECT_EQ(captured_log(),
            "program: cannot configure: a library says: std::bad_alloc; it takes more memory than there is\n");
  EXPECT_EQ(run({}, []() -> Status { return {}; }), 0);
}

/// What is said of words that are wrong.
std::string complaint_of(std::vector<std::string> words) {
  CLI::App app("", "program");
  app.require_subcommand(1);
  CLI::App* const publish = app.add_subcommand("publish");
  std::string state, path;
  publish->add_option("--state", state)->required();
  publish->add_option("PATH", path)->required();
  publish->add_option_group("more")->add_flag("--allow-nonfinite");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(app, std::move(words), [] { return Status(); }), 2);
  return captured_log();
}

TEST(RunCommands, NamesTheFlagThatWasMeant) {
  using testing::StartsWith;
  EXPECT_THAT(complaint_of({"publish", "a", "--stat", "x"}),
              StartsWith("program: '--stat' is no flag of 'publish'; the nearest is '--state' (all: --help)\n"));
  EXPECT_THAT(complaint_of({"publish", "a", "--stat=x"}), StartsWith("program: '--stat' is no flag"));
  EXPECT_THAT(complaint_of({"publish", "a", "--state", "x", "--alow-nonfinite"}),
              testing::HasSubstr("the nearest is '--allow-nonfinite'"));
  EXPECT_THAT(complaint_of({"publish", "a", "--state", "x", "--base", "y"}),
              StartsWith("program: '--base' is no flag of 'publish' (all: --help)\n"))
      << "nothing is near";
  EXPECT_THAT(complaint_of({"--state", "x", "publish", "a"}),
              StartsWith("program: --state: flags stand behind the command: program COMMAND --state ...\n"));
}

TEST(RunCommands, NamesWordsTooManyInTheirOrder) {
  EXPECT_THAT(complaint_of({"publish", "a", "b", "c", "--state", "x"}),
              testing::StartsWith("program: 2 arguments are too many: b c\n"));
  EXPECT_THAT(complaint_of({"publish", "a", "b", "--state", "x"}),
              testing::StartsWith("program: 1 argument is too many: b\n"));
}

// What the origin calls to plan has a name of its own for whoever gave the command.
TEST(RunCommands, SaysWhatTheCommandCouldNotDo) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"publish"}, []() -> Status { return fail(Errc::kNotFound, Op::kPlan, "no such worker"); }), 1);
  EXPECT_EQ(captured_log(), "program: cannot publish: no such worker\n");
}

// A service manager does not start again what would fail again.
TEST(RunCommands, TellsMistakesFromFailures) {
  const auto status_of = [&](std::vector<std::string> words, const CommandBody& body) {
    testing::internal::CaptureStderr();
    const int status = run(std::move(words), body);
    captured_log();
    return status;
  };
  const auto failing = [](Errc code, Op op) { return [=]() -> Status { return fail(code, op, "why"); }; };
  EXPECT_EQ(status_of({}, failing(Errc::kInvalidArgument, Op::kConfigure)), 2);
  EXPECT_EQ(status_of({}, failing(Errc::kInvalidArgument, Op::kPublish)), 1);
  EXPECT_EQ(status_of({}, failing(Errc::kIo, Op::kListen)), 1);
  EXPECT_EQ(status_of({"publsih", "x"}, failing(Errc::kIo, Op::kListen)), 2);
}

// CLI11 holds a group of options as a subcommand without a name.
TEST(RunCommands, TakesAWordBeforeTheOptionsOfAGroup) {
  CLI::App app("", "program");
  CLI::App* const command = app.add_subcommand("generate");
  std::string directory;
  command->add_option("DIR", directory);
  std::string prompt;
  command->add_option_group("prompt")->require_option(1)->add_option("--prompt", prompt);
  EXPECT_EQ(run(app, {"generate", "model", "--prompt", "text"}, []() -> Status { return {}; }), 0);
  EXPECT_EQ(directory, "model");
  EXPECT_EQ(prompt, "text");
}

// Whoever reads a log of objects need not read its last line in another way.
TEST(RunCommands, EndsWithAnObjectWhereTheLogIsJson) {
  testing::internal::CaptureStderr();
  const auto failing = []() -> Status { return fail(Errc::kIo, Op::kListen, "no port"); };
  EXPECT_EQ(run_logged({"run", "--log-format", "json"}, failing), 1);
  EXPECT_THAT(captured_log(),
              testing::MatchesRegex("\\{\"time\":\"[^\"]+\",\"level\":\"error\",\"component\":\"program\","
                                    "\"message\":\"[^\"]*no port\"\\}\n"));
}

}  // namespace
}  // namespace weightcast
