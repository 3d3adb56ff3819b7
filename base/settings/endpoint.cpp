#include "base/settings/endpoint.h"

#include <fmt/format.h>

#include <charconv>

namespace weightcast {

Result<Endpoint> Endpoint::parse(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return fail(Errc::kInvalidArgument, Op::kParse,
                fmt::format("\"{}\": {}; write HOST:PORT or [IPV6]:PORT", text, why));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse("the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);

  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || end != digits.data() + digits.size()) return refuse("a port is a number up to 65535");

  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return refuse("an IPv6 address stands in brackets");
  }
  if (host.empty()) return refuse("the host is missing");
  return Endpoint{std::string(host), port};
}

std::string Endpoint::to_string() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

bool Endpoint::is_loopback() const {
  if (host == "localhost" || host == "::1") return true;
  // 127.0.0.0/8, written as four numbers: "127.example.org" is a name like any other.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
}

}  // namespace weightcast
