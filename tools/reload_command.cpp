#include <fmt/format.h>

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
  const auto [app, state] = add_command<std::string>(
      commands, "reload",
      "Have a running daemon read rates and limits anew from its --config, its keys, and the list of revoked keys",
      run);
  add_state_option(*app, *state, "The daemon's state directory");
  app->footer(
      "Prints what has changed. If anything there is wrong, or cannot change while the daemon runs, nothing has.");
}

}  // namespace weightcast
