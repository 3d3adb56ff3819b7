#include <fmt/format.h>

#include <string>

#include "base/json_text.h"
#include "client/client.h"
#include "tools/command.h"

namespace weightcast {
namespace {

struct ReloadFlags {
  std::string state;
  bool json = false;
};

Status run(const ReloadFlags& flags) {
  const auto deadline = client::deadline_after(5000);
  WC_ASSIGN(const auto client, client::Client::open(flags.state, deadline));
  WC_ASSIGN(const std::vector<std::string> changes, client->reload(deadline));
  if (flags.json) {
    fmt::print("{}\n", json_text({{"changes", changes}}));
    return {};
  }
  for (const std::string& change : changes) fmt::print("{}\n", change);
  if (changes.empty()) fmt::print("nothing has changed\n");
  return {};
}

}  // namespace

void add_reload_command(const Commands& commands) {
  const auto [app, flags] = add_command<ReloadFlags>(
      commands, "reload",
      "Have a running daemon read rates and limits anew from its --config, its keys, and the list of revoked keys",
      run);
  add_state_option(*app, flags->state, "The daemon's state directory");
  app->add_flag("--json", flags->json, "One JSON object: changes, a text each");
  app->footer(
      "Prints what has changed. If anything there is wrong, or cannot change while the daemon runs, nothing has.");
}

}  // namespace weightcast
