#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest/content_digest.h"

namespace weightcast {

// AWS Signature Version 4, in headers, as Amazon's documentation defines it and S3 takes it: a path is encoded once and
// not normalised. Pure.

struct AwsCredentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  ///< "": none
};

using NamedValues = std::vector<std::pair<std::string, std::string>>;

struct AwsRequest {
  std::string method;
  std::string path;     ///< encoded, as it is sent
  NamedValues query;    ///< not encoded
  NamedValues headers;  ///< all that are signed, host among them; names in any case
  std::string payload_hash;
};

struct AwsScope {
  std::string region;
  std::string service;
  std::int64_t unix_s = 0;
};

/// "20150830T123600Z".
[[nodiscard]] std::string aws_time(std::int64_t unix_s);
/// Every byte but letters, digits, '-', '.', '_', '~' and those of `kept` as %XX.
[[nodiscard]] std::string uri_encoded(std::string_view text, std::string_view kept = "");

[[nodiscard]] std::string canonical_request(const AwsRequest& request);
/// The value of the header Authorization.
[[nodiscard]] std::string aws_authorization(const AwsRequest& request, const AwsScope& scope,
                                            const AwsCredentials& credentials);

/// RFC 2104 over SHA-256.
[[nodiscard]] ContentDigest hmac_sha256(Bytes key, std::string_view text);

}  // namespace weightcast
