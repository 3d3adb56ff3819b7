#include "trainer/intake/call_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/text.h"

namespace weightcast::call {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kTextBytesMax = 255;

}  // namespace

Json parse_object(const HttpRequest& request) {
  Json json = parse_json(request.body);
  if (!json.is_object()) throw Refused{400, "the body is no JSON object"};
  return json;
}

std::uint64_t whole(const Json& json, const char* name, std::uint64_t least, std::uint64_t most) {
  const auto found = json.find(name);
  if (found == json.end()) throw Refused{400, fmt::format("'{}' is missing", name)};
  const bool is_natural = found->is_number_unsigned();
  if (is_natural && found->get<std::uint64_t>() >= least && found->get<std::uint64_t>() <= most) {
    return found->get<std::uint64_t>();
  }
  throw Refused{400, fmt::format("'{}' is not a whole number from {} to {}", name, least, most)};
}

double amount(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) return 0;
  if (found->is_number() && found->get<double>() >= 0 && found->get<double>() < 1e18) return found->get<double>();
  throw Refused{400, fmt::format("'{}' is no number from 0 on", name)};
}

bool flag(const Json& json, const char* name, bool absent) {
  const auto found = json.find(name);
  if (found == json.end()) return absent;
  if (found->is_boolean()) return found->get<bool>();
  throw Refused{400, fmt::format("'{}' is neither true nor false", name)};
}

std::string text(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) return "";
  if (found->is_string() && found->get_ref<const std::string&>().size() <= kTextBytesMax) return *found;
  throw Refused{400, fmt::format("'{}' is no text of at most {} bytes", name, kTextBytesMax)};
}

std::string worker_of(const HttpRequest& request, const std::string& said) {
  if (!request.peer) {
    if (said.empty()) throw Refused{400, "'worker' is missing: without keys a worker has to name itself"};
    return said;
  }
  if (!said.empty() && said != request.peer->name) {
    throw Refused{403,
                  fmt::format("'worker' is {}, and the certificate is of {}", printable(said), request.peer->name)};
  }
  return request.peer->name;
}

}  // namespace weightcast::call
