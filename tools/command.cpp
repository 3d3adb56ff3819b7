#include "tools/command.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/settings/endpoint.h"
#include "proto/names.h"
#include "transport/core/plan/plan.h"

namespace weightcast {
namespace {

template <typename Parse>
CLI::Validator validator(std::string type, Parse parse) {
  return CLI::Validator(
      [parse](const std::string& text) {
        const auto parsed = parse(text);
        return parsed.has_value() ? std::string() : parsed.error().detail;
      },
      std::move(type));
}

}  // namespace

CLI::Option* add_state_option(CLI::App& app, std::string& state, const std::string& what) {
  if (const char* named = std::getenv("WEIGHTCAST_STATE"); named != nullptr) state = named;
  return app.add_option("--state", state, what + "; default: WEIGHTCAST_STATE of the environment")
      ->required(state.empty());
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

CLI::Validator rate_validator() { return validator("RATE", parse_rate); }
CLI::Validator bytes_validator() { return validator("BYTES", parse_bytes); }
CLI::Validator endpoint_validator() { return validator("HOST:PORT", Endpoint::parse); }
CLI::Validator node_name_validator() { return validator("NAME", check_node_name); }
CLI::Validator topology_validator() { return validator("TOPOLOGY", parse_topology); }

}  // namespace weightcast
