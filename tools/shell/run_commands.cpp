#include "tools/shell/run_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/asked_error.h"
#include "base/exception_error.h"
#include "base/settings/log_line.h"
#include "base/settings/log_writer.h"
#include "base/settings/nearest_name.h"
#include "base/text.h"
#include "tools/shell/completion.h"
#include "tools/shell/manual.h"

namespace weightcast {
namespace {

/// Turns what a library throws into an error, so that a command ends with one line.
Status caught(const CommandBody& selected) {
  try {
    return selected();
  } catch (const std::exception& exception) {
    return exception_error(exception, "a library says", "it takes more memory than there is");
  }
}

constexpr int kUsageStatus = 2;

/// Whether the same command fails again for certain: its flags or its configuration are wrong. A service manager does
/// not start it again then (RestartPreventExitStatus in deploy/).
bool is_mistake(const Error& error) {
  return error.op == Op::kConfigure && error.code != Errc::kTooLarge && error.code != Errc::kIo;
}

/// What is wrong with the first word that stands where a command should, if it is none; "" otherwise.
std::string unknown_command(const CLI::App& app, std::span<char* const> words) {
  const CLI::App* command = &app;
  for (const std::string_view word : words) {
    // A group of options is a subcommand without a name.
    const auto known = command->get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); });
    if (word.starts_with('-') || known.empty()) return "";
    std::vector<std::string> names;
    for (const CLI::App* one : known) names.push_back(one->get_name());
    const auto found = std::ranges::find(names, word);
    if (found == names.end()) {
      const std::vector<std::string_view> all(names.begin(), names.end());
      return unknown_name(command == &app ? "command" : "command of '" + command->get_name() + "'", word, all);
    }
    command = known[std::size_t(found - names.begin())];
  }
  return "";
}

/// The command of `words` that they choose, and where its own words begin.
std::pair<const CLI::App*, std::size_t> chosen_by(const CLI::App& app, std::span<char* const> words) {
  const CLI::App* command = &app;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const auto found = command->get_subcommands(
        [&](const CLI::App* one) { return !one->get_name().empty() && one->get_name() == words[at]; });
    if (found.empty()) return {command, at};
    command = found.front();
  }
  return {command, words.size()};
}

/// All flags of a command, of its groups, too, without their dashes: "state".
std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* const option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back(name);
  }
  for (const CLI::App* const group :
       command.get_subcommands([](const CLI::App* one) { return one->get_name().empty(); })) {
    for (std::string& flag : flags_of(*group)) flags.push_back(std::move(flag));
  }
  return flags;
}

/// What is wrong with a flag that the chosen command does not have; "" if it has all. What a misspelt one should have
/// set is then missing, which is no help to say.
std::string unknown_flag(const CLI::App& app, std::span<char* const> words) {
  const auto [command, from] = chosen_by(app, words);
  const std::vector<std::string> flags = flags_of(*command);
  const std::vector<std::string_view> names(flags.begin(), flags.end());
  for (const std::string_view word : words.subspan(from)) {
    if (word == "--") break;
    if (!word.starts_with("--")) continue;
    const std::string_view flag = word.substr(2, word.find('=') - 2);
    if (std::ranges::find(names, flag) != names.end()) continue;
    const std::string of = command == &app ? app.get_name() : "'" + command->get_name() + "'";
    if (command == &app && !app.get_subcommands({}).empty()) {
      return fmt::format("--{0}: flags stand behind the command: {1} COMMAND --{0} ...", printable(flag),
                         app.get_name());
    }
    const std::string_view nearest = nearest_name(flag, names);
    return fmt::format("'--{}' is no flag of {}{} (all: --help)", printable(cut_text(flag, 64)), of,
                       nearest.empty() ? "" : fmt::format("; the nearest is '--{}'", nearest));
  }
  return "";
}

/// CLI11 names words that nobody takes in the reverse of their order.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() != int(CLI::ExitCodes::ExtrasError)) return error.what();
  const std::vector<std::string> words = app.remaining(true);
  if (words.empty()) return error.what();
  return fmt::format("{} {} too many: {}", words.size(), words.size() == 1 ? "argument is" : "arguments are",
                     printable(fmt::format("{}", fmt::join(words, " "))));
}

/// How the chosen command writes its log; null if it has none.
const CLI::Option* log_format_of(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? nullptr : chosen.front()->get_option_no_throw("--log-format");
}

}  // namespace

int run_commands(CLI::App& app, const CommandBody& selected, int argc, char** argv) {
  std::string shell;
  CLI::App* const completion = app.add_subcommand("completion", "Print what a shell reads to complete these commands");
  completion->add_option("SHELL", shell, "Which shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  // For the build, which installs it.
  app.add_flag_callback("--man-page", [&] { throw CLI::CallForVersion(manual_page(describe(app), app.version()), 0); })
      ->group("");
  if (const std::string why = unknown_command(app, std::span(argv, std::size_t(argc)).subspan(1)); !why.empty()) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), why.c_str());
    return kUsageStatus;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {  // or the version, or the manual page
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::string why = unknown_flag(app, std::span(argv, std::size_t(argc)).subspan(1));
    if (why.empty()) why = usage_error(app, error);
    std::fprintf(stderr, "%s: %s\nRun with --help for more information.\n", app.get_name().c_str(), why.c_str());
    return kUsageStatus;
  }
  if (completion->parsed()) {
    const Shell which = shell == "bash" ? Shell::kBash : shell == "zsh" ? Shell::kZsh : Shell::kFish;
    std::fputs(completion_script(describe(app), which).c_str(), stdout);
    return 0;
  }
  const CLI::Option* const log_format = log_format_of(app);
  const Status status = caught(selected);
  if (!status.has_value()) {
    const auto chosen = app.get_subcommands();
    const std::string why = message_of(status.error(), chosen.empty() ? "" : chosen.front()->get_name());
    const bool is_json = log_format != nullptr && log_format->count() > 0 && log_format->as<std::string>() == "json";
    is_json ? write_log_line({LogFormat::kJson, app.get_name()}, "error", why)
            : write_log_text(fmt::format("{}: {}\n", app.get_name(), printable(why)));
  }
  flush_log();
  if (status.has_value()) return 0;
  return is_mistake(status.error()) ? kUsageStatus : 1;
}

}  // namespace weightcast
