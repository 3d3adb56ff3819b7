#include <fmt/format.h>

#include <memory>
#include <string>

#include "client/attempt.h"
#include "tools/command.h"

namespace weightcast {
namespace {

struct ServeFlags {
  std::string name;
  std::string state;
};

void add_command(const Commands& commands, const char* name, const char* description, bool serves) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* app = commands.app.add_subcommand(name, description);
  app->add_option("NAME", flags->name, "The worker's name")->required()->check(node_name_validator());
  app->add_option("--state", flags->state, "The origin's state directory")->required();
  app->callback([flags, serves, selected = &commands.selected] {
    *selected = [flags, serves] { return attempt([&] { wc::Client(flags->state).serve(flags->name, serves); }); };
  });
}

}  // namespace

void add_serve_commands(const Commands& commands) {
  add_command(commands, "activate", "Give a worker on standby versions from now on", true);
  add_command(commands, "release", "Put a worker on standby: it gets no versions until it is needed", false);
}

}  // namespace weightcast
