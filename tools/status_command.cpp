#include <fmt/format.h>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/json_text.h"
#include "client/attempt.h"
#include "tools/command.h"
#include "tools/shell/stop_signal.h"
#include "tools/shell/terminal.h"
#include "tools/status_text.h"
#include "transport/security/node_keys.h"

namespace weightcast {
namespace {

using nlohmann::json;

struct StatusFlags {
  std::string state;
  bool json = false;
  bool watch = false;
  std::uint64_t version = 0;
};

std::string status_of(wc::Client& client, const StatusFlags& flags) {
  const std::string text = flags.version == 0 ? client.status() : client.history(flags.version);
  if (flags.json) return text + "\n";
  const json told = json::parse(text);
  return flags.version == 0 ? status_text(told, unix_now_s()) : publication_text(told);
}

void print(const std::string& text) {
  std::fputs(has_colour(stdout) ? coloured_remarks(text).c_str() : text.c_str(), stdout);
  std::fflush(stdout);
}

Status run_status(const StatusFlags& flags) {
  return attempt([&] {
    wc::Client client(flags.state);
    if (!flags.watch) return print(status_of(client, flags));
    const std::atomic<bool>& stop = stop_on_signals();
    std::optional<AlternateScreen> screen;
    if (!flags.json && is_terminal(stdout)) screen.emplace();
    while (!stop) {
      const std::string text = status_of(client, flags);
      screen ? screen->show(text) : print(text);
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
    }
  });
}

Status run_history(const StatusFlags& flags) {
  return attempt([&] {
    const std::string text = wc::Client(flags.state).history();
    fmt::print("{}", flags.json ? text + "\n" : history_text(json::parse(text)));
  });
}

Status run_versions(const StatusFlags& flags) {
  return attempt([&] {
    const std::string text = wc::Client(flags.state).versions();
    fmt::print("{}", flags.json ? text + "\n" : versions_text(json::parse(text)));
  });
}

struct ReadyFlags {
  std::string state;
  bool has_version = false;
  bool json = false;
  double timeout_s = 60;
};

Status run_ready(const ReadyFlags& flags) {
  const std::chrono::milliseconds timeout(std::llround(flags.timeout_s * 1000));
  const auto began = std::chrono::steady_clock::now();
  const Status ready = attempt([&] { wc::wait_until_ready(flags.state, timeout, flags.has_version); });
  if (flags.json) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - began;
    fmt::print("{}\n", json_text({{"ready", ready.has_value()},
                                  {"waited_s", waited.count()},
                                  {"why", ready.has_value() ? "" : ready.error().message()}}));
  }
  return ready;
}

}  // namespace

void add_status_command(const Commands& commands) {
  const auto [app, flags] =
      add_command<StatusFlags>(commands, "status", "Show the nodes: chains, progress, rates, versions", run_status);
  add_state_option(*app, flags->state, "The daemon's state directory");
  app->add_option("--version", flags->version, "Of this version: where the time of each worker went (origin)")
      ->check(CLI::PositiveNumber);
  app->add_flag("--json", flags->json, "JSON; with --watch one object a line");
  app->add_flag("--watch", flags->watch, "Again four times a second, until interrupted");
  app->footer(status_words() + "\n\nWith --version\n" + history_words());
}

void add_history_command(const Commands& commands) {
  const auto [app, flags] = add_command<StatusFlags>(
      commands, "history", "List the last publications: bytes, times, the slowest worker", run_history);
  add_state_option(*app, flags->state, "The state directory of the origin's daemon");
  app->add_flag("--json", flags->json, "JSON");
  app->footer(history_words());
}

void add_versions_command(const Commands& commands) {
  const auto [app, flags] =
      add_command<StatusFlags>(commands, "versions", "List the versions on this host", run_versions);
  add_state_option(*app, flags->state, "The daemon's state directory");
  app->add_flag("--json", flags->json, "JSON");
}

void add_ready_command(const Commands& commands) {
  const auto [app, flags] =
      add_command<ReadyFlags>(commands, "ready", "Wait until a daemon does what it is there for", run_ready);
  add_state_option(*app, flags->state, "The daemon's state directory");
  app->add_flag("--with-version", flags->has_version, "And until a version is in use there");
  app->add_flag("--json", flags->json, "One JSON object: ready, waited_s, and why it is not");
  app->add_option("--timeout", flags->timeout_s, "Seconds")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 31'536'000.0));
}

}  // namespace weightcast
