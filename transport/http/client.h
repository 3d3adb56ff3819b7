#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/settings/endpoint.h"
#include "base/time.h"
#include "base/units.h"
#include "transport/http/message.h"
#include "transport/http/trust.h"

namespace weightcast {

struct HttpClientOptions {
  Endpoint server = {};
  HttpTrust trust = {};
  /// With keys: what the other end has to be. A server that takes rollouts is the origin; one that generates, a worker.
  Role server_role = Role::kOrigin;
  std::uint32_t header_bytes_max = 64 * 1024;
  std::uint64_t body_bytes_max = 256 * kMiB;  ///< of an answer
};

struct HttpCall {
  std::string method = "GET";
  std::string target = "/";  ///< path and query, encoded
  std::string content_type = {};
  std::string body = {};
  std::vector<HttpHeader> headers = {};
};

/// Blocking calls to one server, over a connection that stays open between them. One thread at a time.
/// A server may close such a connection just as a call begins; then the call is made again over a new one. So a call
/// may arrive twice: it has to be harmless if repeated.
class HttpClient {
 public:
  /// Dials at the first call. Errors: those of check_trust() and make_tls().
  [[nodiscard]] static Result<std::unique_ptr<HttpClient>> make(HttpClientOptions options);
  virtual ~HttpClient() = default;

  /// Any status is a response. `limit` bounds everything: the name's lookup, dialling, handshake, and the last byte.
  /// Errors: kTimedOut, kClosed, kIo (nobody listens there), kNotAllowed (who the server is, or what it says of this
  /// end's certificate), kCorrupt (no HTTP), kTooLarge (the answer), kNotFound (no such host).
  [[nodiscard]] virtual Result<HttpResponse> call(const HttpCall& call, Duration limit) = 0;
  /// Any thread. The call in progress, or the next one if none is, ends with
  /// kCancelled.
  virtual void interrupt() = 0;
};

}  // namespace weightcast
