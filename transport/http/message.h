#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/peer_identity.h"

namespace weightcast {

struct HttpHeader {
  std::string name;
  std::string value;
};

/// The value of the first header of that name, in any case of letters; "" if there is none.
[[nodiscard]] std::string_view header_of(const std::vector<HttpHeader>& headers, std::string_view name);

/// A request that has arrived whole. All of it but `peer` and `remote` is the client's word.
struct HttpRequest {
  std::string method = {};  ///< "GET"
  std::string path = {};    ///< of the target, decoded: "/v1/models"
  std::string query = {};   ///< behind the question mark
  std::vector<HttpHeader> headers = {};
  std::string body = {};
  std::optional<PeerIdentity> peer =
      {};                   ///< proven by the connection's certificate; absent where connections are plain
  std::string remote = {};  ///< the other end's address, for people

  [[nodiscard]] std::string_view header(std::string_view name) const { return header_of(headers, name); }
  /// The value of a name in the query, decoded; absent if the query does not have it.
  [[nodiscard]] std::optional<std::string> query_value(std::string_view name) const;
};

/// Sets path and query of `request` from a request line's target, which may be a whole address:
/// "http://host/path". Escapes of control characters stay as they are.
void set_target(HttpRequest& request, std::string_view target);

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  /// Besides Content-Type, Content-Length and Connection. Line ends in them are sent as spaces.
  std::vector<HttpHeader> headers = {};

  [[nodiscard]] std::string_view header(std::string_view name) const { return header_of(headers, name); }
};

/// A refusal as OpenAI's interface has it: {"error": {"message", "type", "code"}}, with `status` for a code.
[[nodiscard]] HttpResponse http_error(unsigned status, std::string_view message);

/// To a request whose method is none of `methods`, "GET, HEAD": status 405 or, to OPTIONS, 204. Both say which are.
[[nodiscard]] HttpResponse http_wrong_method(std::string_view method, std::string_view methods);

/// "Not Found".
[[nodiscard]] std::string_view http_reason(unsigned status);

}  // namespace weightcast
