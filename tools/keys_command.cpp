#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_text.h"
#include "security/authority.h"
#include "security/node_keys.h"
#include "tools/command.h"

namespace weightcast {
namespace {

struct KeysFlags {
  std::string directory = "weightcast-keys";
  std::string name = "origin";
  std::uint32_t days = Authority::kDaysDefault;
  bool renew = false;
  bool json = false;
};

Status init(const KeysFlags& flags) {
  WC_ASSIGN(const Authority authority, Authority::init(flags.directory, flags.name, flags.days, unix_now_s()));
  fmt::print(
      "{0}/authority.pem  signs for cluster {1}; keep it secret, no node needs it\n"
      "{0}/origin.pem     for the origin: weightcast daemon --role origin --keys {0}/origin.pem\n"
      "next, for each worker: weightcast keys issue NAME --dir {0}\n",
      flags.directory, authority.cluster());
  return {};
}

Status issue(const KeysFlags& flags) {
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(Authority authority, Authority::open(flags.directory, now));
  WC_ASSIGN(const std::filesystem::path path, authority.issue(flags.name, flags.days, flags.renew, now));
  fmt::print("{}  for {}, until {}: copy it to that host alone, and start its daemon with --keys\n", path.native(),
             flags.name, date_of(authority.issued().back().expires_unix_s));
  return {};
}

std::string_view state_of(const IssuedKeys& keys, std::int64_t now) {
  if (keys.revoked_unix_s != 0) return "revoked";
  if (keys.expires_unix_s < now) return "expired";
  return keys.expires_unix_s - now <= kExpiryWarning_s ? "expires soon" : "valid";
}

Status list(const KeysFlags& flags) {
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(const Authority authority, Authority::open(flags.directory, now));
  if (flags.json) {
    nlohmann::json entries = nlohmann::json::array();
    for (const IssuedKeys& keys : authority.issued()) {
      entries.push_back({{"name", keys.name},
                         {"use", std::string(to_string(keys.use))},
                         {"serial", keys.serial},
                         {"expires_unix_s", keys.expires_unix_s},
                         {"state", std::string(state_of(keys, now))}});
    }
    fmt::print("{}\n", json_text({{"cluster", authority.cluster()}, {"keys", std::move(entries)}}));
    return {};
  }
  std::size_t width = 4;
  for (const IssuedKeys& keys : authority.issued()) width = std::max(width, keys.name.size());
  fmt::print("cluster {}\n{:<{}}  {:<8} {:<20}  {}\n", authority.cluster(), "name", width, "for", "expires", "state");
  for (const IssuedKeys& keys : authority.issued()) {
    fmt::print("{:<{}}  {:<8} {:<20}  {}\n", keys.name, width, to_string(keys.use), date_of(keys.expires_unix_s),
               state_of(keys, now));
  }
  return {};
}

Status revoke(const KeysFlags& flags) {
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(Authority authority, Authority::open(flags.directory, now));
  WC_ASSIGN(const std::filesystem::path path, authority.revoke(flags.name, now));
  fmt::print("{} is revoked: {} says so\n", flags.name, path.native());
  return {};
}

}  // namespace

void add_keys_command(const Commands& commands) {
  auto flags = std::make_shared<KeysFlags>();
  CLI::App* keys = commands.app.add_subcommand("keys", "Make the keys by which nodes know each other, and end them");
  keys->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, Status (*body)(const KeysFlags&)) {
    CLI::App* command = keys->add_subcommand(name, what);
    command->add_option("--dir", flags->directory, "The authority's directory")->capture_default_str();
    command->callback([flags, body, selected = &commands.selected] { *selected = [=] { return body(*flags); }; });
    return command;
  };
  const auto add_days = [&](CLI::App* command) {
    command->add_option("--days", flags->days, "How long the keys count")
        ->check(CLI::Range(std::uint32_t{1}, Authority::kDaysMax))
        ->capture_default_str();
  };
  const auto add_name = [&](CLI::App* command, const char* what) {
    command->add_option("name", flags->name, what)->required()->check(node_name_validator());
  };

  CLI::App* init_command = add("init", "Make a cluster's authority, and the keys of its origin", init);
  init_command->add_option("--name", flags->name, "The origin's name")
      ->check(node_name_validator())
      ->capture_default_str();
  add_days(init_command);

  CLI::App* issue_command = add("issue", "Make the keys of a worker: one file", issue);
  add_name(issue_command, "The worker's name, which its --name has to be");
  add_days(issue_command);
  issue_command->add_flag("--renew", flags->renew, "New keys for a node that has some; the old ones still count");

  CLI::App* list_command = add("list", "Show whom keys were issued to, and until when they count", list);
  list_command->add_flag("--json", flags->json, "As JSON");

  add_name(add("revoke", "End the keys of a node before they expire", revoke), "The node's name");
}

}  // namespace weightcast
