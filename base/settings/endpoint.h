#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// A host and a port. `host` is numeric or a name.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;

  /// Reads "HOST:PORT" and "[V6]:PORT". Errors: kInvalidArgument.
  [[nodiscard]] static Result<Endpoint> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
  /// Whether the host is a numeric loopback address or "localhost".
  [[nodiscard]] bool is_loopback() const;
};

}  // namespace weightcast
