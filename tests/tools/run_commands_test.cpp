#include "tools/shell/run_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <new>
#include <string>
#include <vector>

#include "base/settings/log_line.h"
#include "tools/shell/configured_command.h"

namespace weightcast {
namespace {

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
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "program: cannot configure: a library says: no bytes\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({}, []() -> Status { throw std::bad_alloc(); }), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "program: cannot configure: a library says: std::bad_alloc; it takes more memory than there is\n");
  EXPECT_EQ(run({}, []() -> Status { return {}; }), 0);
}

// A service manager does not start again what would fail again.
TEST(RunCommands, TellsMistakesFromFailures) {
  const auto status_of = [&](std::vector<std::string> words, const CommandBody& body) {
    testing::internal::CaptureStderr();
    const int status = run(std::move(words), body);
    testing::internal::GetCapturedStderr();
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

// Whoever reads the log may end before the program does.
TEST(RunCommands, OfACommandWithALogOutlivesItsReader) {
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  const auto writes = []() -> Status {
    return std::raise(SIGPIPE) == 0 ? Status() : fail(Errc::kIo, Op::kSend, "raise");
  };
  EXPECT_EQ(run_logged({"run"}, writes), 0);
  std::signal(SIGPIPE, before);
}

// Whoever reads a log of objects need not read its last line in another way.
TEST(RunCommands, EndsWithAnObjectWhereTheLogIsJson) {
  testing::internal::CaptureStderr();
  const auto failing = []() -> Status { return fail(Errc::kIo, Op::kListen, "no port"); };
  EXPECT_EQ(run_logged({"run", "--log-format", "json"}, failing), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("\\{\"time\":\"[^\"]+\",\"level\":\"error\",\"component\":\"program\","
                                    "\"message\":\"[^\"]*no port\"\\}\n"));
}

}  // namespace
}  // namespace weightcast
