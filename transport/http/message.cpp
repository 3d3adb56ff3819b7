#include "transport/http/message.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace weightcast {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

/// An escape that is none stays as it is.
std::string decoded(std::string_view text, bool is_query) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
    const int low = high >= 0 ? digit_of(text[i + 2]) : -1;
    const int byte = high * 16 + low;
    if (low >= 0 && (is_query || (byte >= 0x20 && byte != 0x7f))) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += is_query && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

std::string_view type_of(unsigned status) {
  if (status == 401 || status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

std::string_view header_of(const std::vector<HttpHeader>& headers, std::string_view name) {
  const auto found = std::ranges::find_if(
      headers, [&](const HttpHeader& header) { return std::ranges::equal(header.name, name, {}, lower, lower); });
  return found == headers.end() ? std::string_view() : std::string_view(found->value);
}

std::optional<std::string> HttpRequest::query_value(std::string_view name) const {
  for (std::size_t begin = 0; begin < query.size();) {
    const std::size_t end = std::min(query.find('&', begin), query.size());
    const std::string_view item = std::string_view(query).substr(begin, end - begin);
    const std::size_t equals = std::min(item.find('='), item.size());
    if (decoded(item.substr(0, equals), true) == name) {
      return decoded(item.substr(std::min(equals + 1, item.size())), true);
    }
    begin = end + 1;
  }
  return std::nullopt;
}

void set_target(HttpRequest& request, std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!std::ranges::equal(target.substr(0, scheme.size()), scheme, {}, lower)) continue;
    target.remove_prefix(std::min(target.find_first_of("/?", scheme.size()), target.size()));
    if (target.empty() || target.front() == '?') request.path = "/";
    break;
  }
  const std::size_t mark = std::min(target.find('?'), target.size());
  request.path += decoded(target.substr(0, mark), false);
  if (mark < target.size()) request.query = target.substr(mark + 1);
}

HttpResponse http_wrong_method(std::string_view method, std::string_view methods) {
  HttpResponse response =
      method == "OPTIONS" ? HttpResponse{.status = 204} : http_error(405, "this path takes " + std::string(methods));
  response.headers.push_back({"Allow", std::string(methods) + ", OPTIONS"});
  return response;
}

HttpResponse http_error(unsigned status, std::string_view message) {
  const nlohmann::json body = {{"error", {{"message", message}, {"type", type_of(status)}, {"code", status}}}};
  return {.status = status, .body = json_text(body) + "\n"};
}

std::string_view http_reason(unsigned status) {
  switch (status) {
    case 200: return "OK";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

}  // namespace weightcast
