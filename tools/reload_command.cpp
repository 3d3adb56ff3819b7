#include <fmt/format.h>

#include <memory>
#include <string>

#include "client/client.h"
#include "tools/command.h"

namespace weightcast {
namespace {

Status run(const std::string& state) {
  const auto deadline = client::deadline_after(5000);
  WC_ASSIGN(const auto client, client::Client::open(state, deadline));
  WC_ASSIGN(const std::vector<std::string> changes, client->reload(deadline));
  for (const std::string& change : changes) fmt::print("{}\n", change);
  if (changes.empty()) fmt::print("nothing has changed\n");
  return {};
}

}  // namespace

void add_reload_command(const Commands& commands) {
  auto state = std::make_shared<std::string>();
  CLI::App* app = commands.app.add_subcommand(
      "reload", "Have a running daemon read rates and limits anew from its --config, and the list of revoked keys");
  add_state_option(*app, *state, "The daemon's state directory");
  app->footer(
      "Prints what has changed. If anything there is wrong, or cannot change while the daemon runs, nothing has.");
  app->callback([state, selected = &commands.selected] { *selected = [state] { return run(*state); }; });
}

}  // namespace weightcast
