#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "transport/http/message.h"

namespace weightcast {

struct HttpParserLimits {
  std::uint32_t header_bytes_max = 16 * 1024;
  std::uint64_t body_bytes_max = std::uint64_t{16} << 20;
};

/// Reads one HTTP/1 message from bytes that come in pieces of any size. Pure. Boost.Beast is behind it.
class HttpParser {
 public:
  /// A message that is wrong: the status that a server answers with, and why.
  struct Refusal {
    unsigned status;
    std::string why;
  };

  [[nodiscard]] static std::unique_ptr<HttpParser> for_request(const HttpParserLimits& limits);
  /// `to_head`: the request was a HEAD, so that no body follows.
  [[nodiscard]] static std::unique_ptr<HttpParser> for_response(const HttpParserLimits& limits, bool to_head);
  virtual ~HttpParser() = default;

  /// Takes bytes, which begin with those that the last call left. Returns how many it took: all of a body that there
  /// is, and of a header all or nothing. After a refusal the parser is of no more use.
  [[nodiscard]] virtual std::size_t put(std::string_view bytes) = 0;
  /// The other end sends nothing more. That may end a response, or be a refusal.
  virtual void put_end() = 0;
  [[nodiscard]] const std::optional<Refusal>& refusal() const { return refusal_; }

  [[nodiscard]] virtual bool header_done() const = 0;
  [[nodiscard]] virtual bool done() const = 0;
  /// After the header: whether the connection may carry another message after this one.
  [[nodiscard]] virtual bool keep_alive() const = 0;
  /// After the header: the client waits for "100 Continue" before it sends the body.
  [[nodiscard]] virtual bool expects_continue() const = 0;
  /// After the header: HTTP/1.0, which knows no chunks.
  [[nodiscard]] virtual bool is_http_1_0() const = 0;

  /// Once it is done(), and once only. Of a request all but `peer` and `remote`.
  [[nodiscard]] virtual HttpRequest take_request() = 0;
  [[nodiscard]] virtual HttpResponse take_response() = 0;

 protected:
  std::optional<Refusal> refusal_;
};

}  // namespace weightcast
