#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "tools/command.h"
#include "transport/node/members/enroll.h"
#include "transport/security/authority.h"
#include "transport/security/node_keys.h"

namespace weightcast {
namespace {

struct KeysFlags {
  std::string directory = "weightcast-keys";
  std::string name = "origin";
  std::uint32_t days = Authority::kDaysDefault;
  bool renew = false;
  bool json = false;
  bool authority = false;
  std::uint32_t overlap_days = 30;
  std::vector<std::string> addresses;
  std::uint32_t uses = 1;
  std::uint32_t minutes = 60;
  std::string origin, out, token_file, worker_name;
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
  WC_ASSIGN(const std::filesystem::path path,
            authority.issue(flags.name, flags.days, flags.renew, now, flags.addresses));
  fmt::print("{}  for {}, until {}: copy it to that host alone, and start its daemon with --keys\n", path.native(),
             flags.name, date_of(authority.issued().back().expires_unix_s));
  return {};
}

std::string_view state_of(const IssuedKeys& keys, std::int64_t now) {
  if (keys.revoked_unix_s != 0) return "revoked";
  if (keys.end_unix_s() < now) return "expired";
  if (keys.replaced_unix_s != 0) return "replaced";
  return keys.expires_unix_s - now <= kExpiryWarning_s ? "expires soon" : "valid";
}

/// Of the keys that a node was given for one use, the last: the others were renewed or rotated.
bool is_current(std::span<const IssuedKeys> issued, const IssuedKeys& keys) {
  const auto last = std::find_if(issued.rbegin(), issued.rend(), [&](const IssuedKeys& other) {
    return other.name == keys.name && other.use == keys.use;
  });
  return &*last == &keys && keys.revoked_unix_s == 0;
}

/// "current" is said where others of that node count, too.
std::string shown_state_of(std::span<const IssuedKeys> issued, const IssuedKeys& keys, std::int64_t now) {
  const auto count = std::ranges::count_if(issued, [&](const IssuedKeys& other) {
    return other.name == keys.name && other.use == keys.use && other.counts_at(now);
  });
  return fmt::format("{}{}", state_of(keys, now), count > 1 && is_current(issued, keys) ? ", current" : "");
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
                         {"expires_unix_s", keys.end_unix_s()},
                         {"state", std::string(state_of(keys, now))},
                         {"current", is_current(authority.issued(), keys)}});
    }
    nlohmann::json authorities = nlohmann::json::array();
    for (const auto& [cluster, until] : authority.authorities()) {
      authorities.push_back({{"cluster", cluster}, {"until_unix_s", until}});
    }
    fmt::print("{}\n", json_text({{"cluster", authority.cluster()},
                                  {"authorities", std::move(authorities)},
                                  {"keys", std::move(entries)}}));
    return {};
  }
  std::size_t width = 4;
  for (const IssuedKeys& keys : authority.issued()) width = std::max(width, keys.name.size());
  for (const auto& [cluster, until] : authority.authorities()) {
    fmt::print("cluster {}  its authority counts until {}\n", cluster, date_of(until));
  }
  fmt::print("{:<{}}  {:<9}  {:<20}  {}\n", "name", width, "for", "expires", "state");
  for (const IssuedKeys& keys : authority.issued()) {
    fmt::print("{:<{}}  {:<9}  {:<20}  {}\n", keys.name, width, to_string(keys.use), date_of(keys.end_unix_s()),
               shown_state_of(authority.issued(), keys, now));
  }
  return {};
}

Status revoke(const KeysFlags& flags) {
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(Authority authority, Authority::open(flags.directory, now));
  WC_ASSIGN(const std::filesystem::path path, authority.revoke(flags.name, now));
  fmt::print("{0} is revoked: {1} says so\n'weightcast forget {0}' at the origin takes it out of status, too\n",
             flags.name, path.native());
  return {};
}

Status token(const KeysFlags& flags) {
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(Authority authority, Authority::open(flags.directory, now));
  const TokenOrder order{flags.name, flags.uses, now + std::int64_t{flags.minutes} * 60, flags.days};
  WC_ASSIGN(const JoinToken made, authority.make_token(order, now));
  const Secret text = to_text(made);
  fmt::print("{}\n", text.text());
  fmt::print(stderr,
             "for {}, {} until {}; on that machine: weightcast keys enroll --origin HOST:PORT -o keys.pem\n"
             "the origin has to run with --enroll {}\n",
             flags.name, flags.uses == 1 ? std::string("once") : fmt::format("{} times", flags.uses),
             date_of(order.expires_unix_s), flags.directory);
  return {};
}

std::string_view trimmed(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t\r\n");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t\r\n") - from + 1);
}

/// From the file, or from stdin: everybody on the host can see a command's arguments.
Result<JoinToken> read_token(const std::string& file) {
  if (!file.empty()) {
    WC_ASSIGN(const Secret text, read_owner_only(file));
    return parse_join_token(trimmed(text.text()));
  }
  if (::isatty(STDIN_FILENO) == 1) fmt::print(stderr, "join token: ");
  std::string line;
  std::getline(std::cin, line);
  const Secret text(std::move(line));
  return parse_join_token(trimmed(text.text()));
}

Status enroll_here(const KeysFlags& flags) {
  hide_memory();
  PosixFileSystem files;
  const std::filesystem::path out = std::filesystem::absolute(flags.out);
  if (exists(files, out)) {
    return fail(Errc::kAlreadyExists, Op::kWrite, fmt::format("{}: it is there; choose another file", flags.out));
  }
  WC_TRY(files.check_writable(out.parent_path()));  // before the token is used
  EnrollOrder order;
  WC_ASSIGN(order.token, read_token(flags.token_file));
  WC_ASSIGN(order.origin, Endpoint::parse(flags.origin));
  order.name = flags.worker_name;
  order.host_name = host_name();
  WC_ASSIGN(const NodeKeys made, enroll(order));
  const Secret text = to_text(made);
  WC_TRY(write_owner_only(out, text.text()));
  fmt::print("{}  for {} in cluster {}, until {}\nnext: weightcast daemon --role worker --keys {} --origin {} ...\n",
             flags.out, made.info.name, read_certificate(made.authority.get())->name,
             date_of(made.info.not_after_unix_s), flags.out, flags.origin);
  return {};
}

Status rotate(const KeysFlags& flags) {
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(Authority authority, Authority::open(flags.directory, now));
  WC_ASSIGN(const std::filesystem::path path, flags.authority ? authority.rotate_authority(flags.overlap_days, now)
                                                              : authority.rotate_signing(flags.overlap_days, now));
  fmt::print("{}: 'weightcast reload' has a running origin take it\n", path.native());
  const std::string until = date_of(now + std::int64_t{flags.overlap_days} * kDay_s);
  if (flags.authority) {
    fmt::print(
        "until {} keys of the authority before count, too; for each worker: weightcast keys issue NAME --renew\n",
        until);
  } else {
    fmt::print("until {} what the signing key before has signed counts, too\n", until);
  }
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
    command->callback([flags, body, selected = &commands.selected] {
      *selected = [=] {
        hide_memory();
        return body(*flags);
      };
    });
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

  issue_command->add_option("--address", flags->addresses,
                            "Where others dial the worker, if it is not where its connections come from");

  CLI::App* list_command = add("list", "Show whom keys were issued to, and until when they count", list);
  list_command->add_flag("--json", flags->json, "As JSON");

  CLI::App* token_command = add("token", "Make a token by which a machine can enrol at the origin", token);
  token_command
      ->add_option("--name", flags->name,
                   "The worker's name; with * for any characters, so that each machine can choose")
      ->required();
  token_command->add_option("--uses", flags->uses, "How many machines may use it")
      ->check(CLI::Range(std::uint32_t{1}, TokenOrder::kUsesMax))
      ->capture_default_str();
  token_command->add_option("--minutes", flags->minutes, "How long it counts")
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t(TokenOrder::kLifetimeMax_s / 60)))
      ->capture_default_str();
  add_days(token_command);

  CLI::App* enroll_command = keys->add_subcommand("enroll", "Make this machine's keys, by a join token from stdin");
  enroll_command->add_option("--origin", flags->origin, "The origin's address")
      ->required()
      ->check(endpoint_validator());
  enroll_command->add_option("-o,--output", flags->out, "The file of keys to write")->required();
  enroll_command->add_option("--name", flags->worker_name, "The worker's name; default: the token's, or the host's")
      ->check(node_name_validator());
  enroll_command->add_option("--token-file", flags->token_file, "Read the token from this file, of mode 600");
  enroll_command->callback(
      [flags, selected = &commands.selected] { *selected = [flags] { return enroll_here(*flags); }; });

  CLI::App* rotate_command = add("rotate", "Make another signing key for the origin, or another authority", rotate);
  rotate_command->add_flag("--authority", flags->authority, "Another authority, which makes the keys from then on");
  rotate_command->add_option("--overlap", flags->overlap_days, "Days for which the one before still counts")
      ->check(CLI::Range(std::uint32_t{1}, Authority::kDaysMax))
      ->capture_default_str();

  add_name(add("revoke", "End the keys of a node before they expire", revoke), "The node's name");
}

}  // namespace weightcast
