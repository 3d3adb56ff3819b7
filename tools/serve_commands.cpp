#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/json_text.h"
#include "client/attempt.h"
#include "tools/command.h"

namespace weightcast {
namespace {

struct ServeFlags {
  std::string name;
  std::string state;
  bool json = false;
};

/// `ask` does it by the client, for the worker's name. `done`: what is said of that worker then.
template <typename Ask>
void add_worker_command(const Commands& commands, const char* name, const char* description, const char* done,
                        Ask ask) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* app = commands.app.add_subcommand(name, description);
  app->add_option("NAME", flags->name, "The worker's name")->required()->check(node_name_validator());
  add_state_option(*app, flags->state, "The origin's state directory");
  app->add_flag("--json", flags->json, "One JSON object: name, and what is done");
  app->callback([flags, done, ask, selected = &commands.selected] {
    *selected = [flags, done, ask] {
      return attempt([&] {
        wc::Client client(flags->state);
        ask(client, flags->name);
        if (flags->json) {
          fmt::print("{}\n", json_text({{"name", flags->name}, {"done", done}}));
        } else {
          fmt::print("{} {}\n", flags->name, done);
        }
      });
    };
  });
}

}  // namespace

void add_serve_commands(const Commands& commands) {
  add_worker_command(commands, "activate", "Give a worker on standby versions from now on", "gets versions from now on",
                     [](wc::Client& client, const std::string& name) { client.serve(name, true); });
  add_worker_command(commands, "release", "Put a worker on standby: it gets no versions until it is needed",
                     "is on standby: it gets no versions until it is activated",
                     [](wc::Client& client, const std::string& name) { client.serve(name, false); });
  add_worker_command(commands, "forget", "Know a lost worker no more, nor what is held against it",
                     "is forgotten, and what was held against it",
                     [](wc::Client& client, const std::string& name) { client.forget(name); });
}

}  // namespace weightcast
