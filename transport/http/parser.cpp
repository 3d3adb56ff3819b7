#include "transport/http/parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/result.h"

namespace weightcast {
namespace {

namespace beast = boost::beast::http;

HttpParser::Refusal refusal_of(const boost::beast::error_code& error) {
  if (error == beast::error::header_limit) return {431, "the header is too long"};
  if (error == beast::error::body_limit) return {413, "the body is too long"};
  if (error == beast::error::bad_version) return {505, "it is neither HTTP/1.1 nor HTTP/1.0"};
  return {400, "no HTTP request: " + error.message()};
}

std::string text(boost::beast::string_view view) { return {view.data(), view.size()}; }

template <bool is_request>
class BeastParser final : public HttpParser {
 public:
  explicit BeastParser(const HttpParserLimits& limits, bool skip_body) {
    parser_.eager(true);
    parser_.header_limit(limits.header_bytes_max);
    parser_.body_limit(limits.body_bytes_max);
    parser_.skip(skip_body);
  }

  std::size_t put(std::string_view bytes) override {
    boost::beast::error_code error;
    std::size_t taken = 0;
    // One call may stop at the end of the header, or of a chunk.
    while (taken < bytes.size() && !parser_.is_done()) {
      const std::size_t now = parser_.put(boost::asio::buffer(bytes.substr(taken)), error);
      taken += now;
      if (error == beast::error::need_more) {
        error = {};
        break;
      }
      if (error || now == 0) break;
    }
    if (error) refusal_ = refusal_of(error);
    return taken;
  }

  void put_end() override {
    boost::beast::error_code error;
    if (parser_.is_done()) return;
    if (parser_.got_some()) {
      parser_.put_eof(error);
    } else {
      error = beast::error::partial_message;
    }
    if (error) refusal_ = refusal_of(error);
  }

  bool header_done() const override { return parser_.is_header_done(); }
  bool done() const override { return parser_.is_done(); }
  bool keep_alive() const override { return parser_.keep_alive(); }
  bool is_http_1_0() const override { return parser_.get().version() < 11; }
  bool expects_continue() const override {
    return boost::beast::iequals(parser_.get()[beast::field::expect], "100-continue");
  }

  HttpRequest take_request() override {
    if constexpr (is_request) {
      auto message = parser_.release();
      HttpRequest request;
      request.method = text(message.method_string());
      set_target(request, text(message.target()));
      request.headers = headers_of(message);
      request.body = std::move(message.body());
      return request;
    } else {
      WC_CHECK(false);
    }
  }

  HttpResponse take_response() override {
    if constexpr (is_request) {
      WC_CHECK(false);
    } else {
      auto message = parser_.release();
      return {.status = message.result_int(),
              .content_type = text(message[beast::field::content_type]),
              .body = std::move(message.body()),
              .headers = headers_of(message)};
    }
  }

 private:
  template <typename Message>
  static std::vector<HttpHeader> headers_of(const Message& message) {
    std::vector<HttpHeader> headers;
    for (const auto& field : message) headers.push_back({text(field.name_string()), text(field.value())});
    return headers;
  }

  beast::parser<is_request, beast::string_body> parser_;
};

}  // namespace

std::unique_ptr<HttpParser> HttpParser::for_request(const HttpParserLimits& limits) {
  return std::make_unique<BeastParser<true>>(limits, false);
}

std::unique_ptr<HttpParser> HttpParser::for_response(const HttpParserLimits& limits, bool to_head) {
  return std::make_unique<BeastParser<false>>(limits, to_head);
}

}  // namespace weightcast
