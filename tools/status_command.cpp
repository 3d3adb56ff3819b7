#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "client/attempt.h"
#include "security/node_keys.h"
#include "tools/command.h"
#include "tools/status_text.h"

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

Status run_status(const StatusFlags& flags) {
  return attempt([&] {
    wc::Client client(flags.state);
    for (;;) {
      const std::string text = status_of(client, flags);
      if (flags.watch && !flags.json && ::isatty(STDOUT_FILENO) == 1) std::fputs("\x1b[H\x1b[2J", stdout);
      std::fputs(text.c_str(), stdout);
      std::fflush(stdout);
      if (!flags.watch) return;
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
  double timeout_s = 60;
};

Status run_ready(const ReadyFlags& flags) {
  const std::chrono::milliseconds timeout(std::llround(flags.timeout_s * 1000));
  return attempt([&] { wc::wait_until_ready(flags.state, timeout, flags.has_version); });
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
  app->add_option("--timeout", flags->timeout_s, "Seconds")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 31'536'000.0));
}

}  // namespace weightcast
