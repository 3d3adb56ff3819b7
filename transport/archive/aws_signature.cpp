#include "transport/archive/aws_signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <map>
#include <span>

namespace weightcast {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr std::size_t kHmacBlockBytes = 64;  // of SHA-256

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// Without blanks at its ends, and with one for several within.
std::string trimmed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::map<std::string, std::string> canonical_headers(const AwsRequest& request) {
  std::map<std::string, std::string> headers;
  for (const auto& [name, value] : request.headers) {
    const auto [at, added] = headers.try_emplace(lower(name), trimmed(value));
    if (!added) at->second += "," + trimmed(value);
  }
  return headers;
}

std::string signed_names(const AwsRequest& request) {
  std::string names;
  for (const auto& [name, _] : canonical_headers(request)) names += (names.empty() ? "" : ";") + name;
  return names;
}

}  // namespace

std::string aws_time(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
                     utc.tm_min, utc.tm_sec);
}

std::string uri_encoded(std::string_view text, std::string_view kept) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 128 && std::isalnum(byte) != 0) || std::string_view("-._~").find(c) != kept.npos ||
                       kept.find(c) != kept.npos;
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

ContentDigest hmac_sha256(Bytes key, std::string_view text) {
  std::array<std::byte, kHmacBlockBytes> block{};
  const ContentDigest short_key = key.size() > block.size() ? content_digest_of(key) : ContentDigest();
  if (key.size() > block.size()) key = short_key.bytes;
  std::ranges::copy(key, block.begin());
  const auto hashed = [&](std::byte pad, Bytes rest) {
    std::array<std::byte, kHmacBlockBytes> padded = block;
    for (std::byte& byte : padded) byte ^= pad;
    ContentDigestStream digest;
    digest.update(padded);
    digest.update(rest);
    return digest.take();
  };
  return hashed(std::byte{0x5c}, hashed(std::byte{0x36}, bytes_of(text)).bytes);
}

std::string canonical_request(const AwsRequest& request) {
  std::vector<std::pair<std::string, std::string>> query;
  for (const auto& [name, value] : request.query) query.emplace_back(uri_encoded(name), uri_encoded(value));
  std::ranges::sort(query);
  std::string query_text, headers_text;
  for (const auto& [name, value] : query) query_text += (query_text.empty() ? "" : "&") + name + "=" + value;
  for (const auto& [name, value] : canonical_headers(request)) headers_text += name + ":" + value + "\n";
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path, query_text, headers_text,
                     signed_names(request), request.payload_hash);
}

std::string aws_authorization(const AwsRequest& request, const AwsScope& scope, const AwsCredentials& credentials) {
  const std::string time = aws_time(scope.unix_s), day = time.substr(0, 8);
  const std::string scope_text = fmt::format("{}/{}/{}/aws4_request", day, scope.region, scope.service);
  const std::string to_sign = fmt::format("{}\n{}\n{}\n{}", kAlgorithm, time, scope_text,
                                          content_digest_of(bytes_of(canonical_request(request))).hex());
  ContentDigest key = hmac_sha256(bytes_of("AWS4" + credentials.secret_key), day);
  for (const std::string_view part :
       {std::string_view(scope.region), std::string_view(scope.service), std::string_view("aws4_request")}) {
    key = hmac_sha256(key.bytes, part);
  }
  return fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm, credentials.access_key,
                     scope_text, signed_names(request), hmac_sha256(key.bytes, to_sign).hex());
}

}  // namespace weightcast
