#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/json_text.h"
#include "client/attempt.h"
#include "tools/command.h"

namespace weightcast {
namespace {

struct PathFlags {
  std::string state;
  std::uint64_t version = 0;
  bool json = false;
};

/// What is told of the version in use, or of `wanted`.
Result<nlohmann::json> entry_in(const nlohmann::json& reply, std::uint64_t wanted) {
  std::string known;
  for (const nlohmann::json& entry : reply.at("versions")) {
    const auto version = entry.at("version").get<std::uint64_t>();
    if (wanted == 0 ? entry.at("current").get<bool>() : version == wanted) return entry;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", version);
  }
  if (wanted == 0)
    return fail(Errc::kNotFound, Op::kRead,
                "no version is in use yet; 'weightcast ready --with-version' waits for one");
  return fail(Errc::kNotFound, Op::kRead,
              fmt::format("version {}: it is not on this host, which has {}", wanted, known.empty() ? "none" : known));
}

Status run(const PathFlags& flags) {
  WC_ASSIGN(const std::string text, attempt([&] { return wc::Client(flags.state).versions(); }));
  WC_ASSIGN(const nlohmann::json entry, entry_in(nlohmann::json::parse(text), flags.version));
  const auto path = entry.at("path").get<std::string>();
  fmt::print("{}\n", flags.json ? json_text({{"version", entry.at("version")}, {"path", path}}) : path);
  return {};
}

}  // namespace

void add_path_command(const Commands& commands) {
  const auto [app, flags] = add_command<PathFlags>(
      commands, "path", "Print the directory of the version in use, which stays that version's", run);
  add_state_option(*app, flags->state, "The daemon's state directory");
  app->add_option("--version", flags->version, "Of this version, which need not be in use");
  app->add_flag("--json", flags->json, "One JSON object: version and path");
}

}  // namespace weightcast
