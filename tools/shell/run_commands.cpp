#include "tools/shell/run_commands.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/exception_error.h"
#include "base/settings/log_line.h"
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
    app.exit(error);
    return kUsageStatus;
  }
  if (completion->parsed()) {
    const Shell which = shell == "bash" ? Shell::kBash : shell == "zsh" ? Shell::kZsh : Shell::kFish;
    std::fputs(completion_script(describe(app), which).c_str(), stdout);
    return 0;
  }
  const CLI::Option* const log_format = log_format_of(app);
  // A program that keeps a log goes on without whoever reads it; and to write to a peer that is gone is an error there.
  if (log_format != nullptr) std::signal(SIGPIPE, SIG_IGN);
  const Status status = caught(selected);
  if (status.has_value()) return 0;
  if (log_format != nullptr && log_format->count() > 0 && log_format->as<std::string>() == "json") {
    write_log_line({LogFormat::kJson, app.get_name()}, "error", status.error().message());
  } else {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), printable(status.error().message()).c_str());
  }
  return is_mistake(status.error()) ? kUsageStatus : 1;
}

}  // namespace weightcast
