#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings/endpoint.h"
#include "transport/http/server.h"
#include "transport/security/owner_only_file.h"

namespace weightcast {

struct OperatorPortOptions {
  Endpoint listen;
  std::string keys = {};        ///< file of this node's keys; "": it has none
  std::string token_file = {};  ///< whose first line a request has to bring; "": none
  /// HttpTrust's.
  std::vector<std::string> revocation_directories = {};
  std::function<void(std::string)> warn = {};  ///< on the server's thread
};

/// The HTTP port for operators: GET alone, and for those who may ask.
///
/// | port            | who may ask |
/// |---|---|
/// | with a token    | whoever brings it: `Authorization: Bearer TOKEN`, or Basic with the user weightcast and TOKEN |
/// | on loopback     | everybody on this host. A `Host` that is no loopback address is refused, so that no page of
/// |                 | elsewhere reads it by a name that leads here |
/// | else, with keys | whoever has keys of the cluster: connections are TLS |
///
/// Connections, requests and times are bounded (HttpLimits), and a client that does not read is dropped.
class OperatorPort {
 public:
  /// Whether start() would listen like that. Errors: kNotAllowed (beyond loopback without token and keys).
  [[nodiscard]] static Status check(const OperatorPortOptions& options);

  /// Listens; `answer` gets the requests of those who may ask, as HttpHandler says. Errors: those of check(),
  /// read_owner_only() and HttpServer::start(); kInvalidArgument (a token of less than 16 characters).
  [[nodiscard]] static Result<std::unique_ptr<OperatorPort>> start(const OperatorPortOptions& options,
                                                                   HttpHandler answer);
  /// The handler is not called after it.
  ~OperatorPort();
  OperatorPort(const OperatorPort&) = delete;
  OperatorPort& operator=(const OperatorPort&) = delete;

  /// HttpServer's.
  void read_keys_again() { server_->read_keys_again(); }
  [[nodiscard]] const Endpoint& endpoint() const { return server_->endpoint(); }
  /// "http://127.0.0.1:7401"
  [[nodiscard]] std::string url() const;

 private:
  enum class Access { kToken, kLoopback, kKeys };

  OperatorPort(Access access, Secret token, HttpHandler answer)
      : access_(access), token_(std::move(token)), answer_(std::move(answer)) {}
  /// "" if it may be answered; otherwise why not.
  [[nodiscard]] std::string refusal(const HttpRequest& request) const;
  void handle(HttpRequest request, HttpResponder responder) const;

  const Access access_;
  const Secret token_;
  const HttpHandler answer_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace weightcast
