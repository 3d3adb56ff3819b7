#include "tools/observe/operator_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "transport/security/base64.h"

namespace weightcast {
namespace {

constexpr std::size_t kTokenBytesMin = 16;

// A request has no body, and few clients look at a node; the state of 10,000 workers is 12 MB.
HttpLimits limits() {
  HttpLimits limits;
  limits.connections_max = 128;
  limits.body_bytes_max = 4 * kKiB;
  limits.bodies_bytes_max = limits.bodies_bytes_per_peer_max = 256 * kKiB;
  limits.stream_bytes_max = 32 * kMiB;
  limits.streams_bytes_max = 64 * kMiB;
  limits.body_time_max = std::chrono::seconds(10);
  limits.idle_time_max = std::chrono::seconds(120);
  limits.answer_time_max = std::chrono::seconds(30);
  return limits;
}

/// Of a Host header, whose port may be missing.
bool is_loopback(std::string_view host) {
  const auto endpoint = Endpoint::parse(host);
  if (endpoint.has_value()) return endpoint->is_loopback();
  return Endpoint{std::string(host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host), 0}
      .is_loopback();
}

Result<Secret> read_token(const std::string& path) {
  WC_ASSIGN(const Secret file, read_owner_only(path));
  const std::string& text = file.text();
  Secret token(text.substr(0, text.find_first_of("\r\n")));
  if (token.text().size() >= kTokenBytesMin) return token;
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("{}: its first line is the token, of {} characters at least; make one: openssl rand -hex 32",
                          path, kTokenBytesMin));
}

}  // namespace

Status OperatorPort::check(const OperatorPortOptions& options) {
  if (!options.token_file.empty() || !options.keys.empty() || options.listen.is_loopback()) return {};
  return fail(Errc::kNotAllowed, Op::kConfigure,
              fmt::format("--http {}: everybody who reaches this address could read what is told there; listen on "
                          "127.0.0.1, give a token by --http-token FILE (openssl rand -hex 32), or this node's --keys",
                          options.listen.to_string()));
}

Result<std::unique_ptr<OperatorPort>> OperatorPort::start(const OperatorPortOptions& options, HttpHandler answer) {
  WC_TRY(check(options));
  const bool has_token = !options.token_file.empty();
  WC_ASSIGN(Secret token, has_token ? read_token(options.token_file) : Result<Secret>(Secret()));
  const Access access = has_token ? Access::kToken : options.listen.is_loopback() ? Access::kLoopback : Access::kKeys;
  HttpServerOptions server;
  server.listen = options.listen;
  server.limits = limits();
  server.warn = options.warn;
  if (access == Access::kKeys) {
    server.trust.keys = options.keys;
    server.trust.revocation_directories = options.revocation_directories;
  } else {
    server.trust.insecure = true;  // the token, or the host, is who is trusted
  }
  std::unique_ptr<OperatorPort> port(new OperatorPort(access, std::move(token), std::move(answer)));
  WC_ASSIGN(port->server_, HttpServer::listen(std::move(server)));
  port->server_->serve([self = port.get()](HttpRequest request, HttpResponder responder) {
    self->handle(std::move(request), std::move(responder));
  });
  return port;
}

OperatorPort::~OperatorPort() {
  if (server_) server_->stop(Duration::zero());
}

std::string OperatorPort::url() const {
  return fmt::format("{}://{}", access_ == Access::kKeys ? "https" : "http", endpoint().to_string());
}

std::string OperatorPort::refusal(const HttpRequest& request) const {
  if (access_ == Access::kKeys) return "";
  if (access_ == Access::kLoopback) {
    const std::string_view host = request.header("Host");
    return host.empty() || is_loopback(host) ? "" : "this port is for this host: ask it by 127.0.0.1, ::1 or localhost";
  }
  const std::string_view given = request.header("Authorization");
  const Secret bearer("Bearer " + token_.text()), pair("weightcast:" + token_.text());
  std::string encoded = "Basic ";
  append_base64(std::as_bytes(std::span(pair.text())), encoded);
  const Secret basic(std::move(encoded));
  if (bearer.matches(given) || basic.matches(given)) return "";
  return "this port wants its token: 'Authorization: Bearer TOKEN', or the user weightcast with TOKEN as the password";
}

void OperatorPort::handle(HttpRequest request, HttpResponder responder) const {
  if (const std::string why = refusal(request); !why.empty()) {
    HttpResponse refused = http_error(access_ == Access::kToken ? 401 : 403, why);
    if (access_ == Access::kToken) refused.headers.push_back({"WWW-Authenticate", "Basic realm=\"weightcast\""});
    return responder.send(std::move(refused));
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return responder.send(http_wrong_method(request.method, "GET, HEAD"));
  }
  answer_(std::move(request), std::move(responder));
}

}  // namespace weightcast
