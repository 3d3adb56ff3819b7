#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "transport/http/server.h"

namespace weightcast {

/// A request that is answered with a refusal: thrown by its handler.
struct Refused {
  unsigned status;  ///< of HTTP
  std::string why;
};

}  // namespace weightcast

/// Reads the members of a worker's call at the learner's port. Each function throws Refused, which names the member
/// that is missing or wrong. Pure.
namespace weightcast::call {

[[nodiscard]] nlohmann::json parse_object(const HttpRequest& request);
/// A whole number within those bounds.
[[nodiscard]] std::uint64_t whole(const nlohmann::json& json, const char* name, std::uint64_t least,
                                  std::uint64_t most);
/// A finite number, not negative; 0 if it is absent.
[[nodiscard]] double amount(const nlohmann::json& json, const char* name);
[[nodiscard]] bool flag(const nlohmann::json& json, const char* name, bool absent);
/// A text of at most 255 bytes; "" if it is absent.
[[nodiscard]] std::string text(const nlohmann::json& json, const char* name);

/// The name of the worker that asks: by the certificate, or `said` where there is none.
[[nodiscard]] std::string worker_of(const HttpRequest& request, const std::string& said);

}  // namespace weightcast::call
