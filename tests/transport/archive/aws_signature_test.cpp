#include "transport/archive/aws_signature.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace weightcast {
namespace {

using Json = nlohmann::json;

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

NamedValues pairs(const Json& json) {
  NamedValues values;
  for (const Json& each : json) values.emplace_back(each.at(0), each.at(1));
  return values;
}

// Amazon's test suite of Signature Version 4, and the examples of the documentation of S3: what they publish.
TEST(AwsSignature, IsWhatAmazonPublishes) {
  std::ifstream lines(std::string(WEIGHTCAST_GOLDEN) + "/aws_signature.jsonl");
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json one = Json::parse(line);
    SCOPED_TRACE(one.at("name").get<std::string>());
    const bool s3 = one.value("s3", false);
    AwsScope scope{"us-east-1", s3 ? "s3" : "service", s3 ? 1369353600 : 1440938160};
    AwsCredentials credentials{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", one.value("token", "")};
    if (s3) credentials = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
    AwsRequest request{one.at("method"), one.at("path"), pairs(one.value("query", Json::array())),
                       pairs(one.value("headers", Json::array())),
                       content_digest_of(bytes_of(one.value("body", ""))).hex()};
    request.headers.emplace_back("Host", s3 ? "examplebucket.s3.amazonaws.com" : "example.amazonaws.com");
    request.headers.emplace_back("X-Amz-Date", aws_time(scope.unix_s));
    if (s3) request.headers.emplace_back("x-amz-content-sha256", request.payload_hash);
    if (!credentials.session_token.empty()) {
      request.headers.emplace_back("X-Amz-Security-Token", credentials.session_token);
    }
    EXPECT_EQ(aws_authorization(request, scope, credentials),
              fmt::format("AWS4-HMAC-SHA256 Credential={}/{}/us-east-1/{}/aws4_request, SignedHeaders={}, Signature={}",
                          credentials.access_key, s3 ? "20130524" : "20150830", scope.service,
                          one.at("signed").get<std::string>(), one.at("signature").get<std::string>()));
  }
  EXPECT_EQ(count, 15u);
}

TEST(AwsSignature, TimeIsThatOfTheHeader) {
  EXPECT_EQ(aws_time(1440938160), "20150830T123600Z");
  EXPECT_EQ(aws_time(1369353600), "20130524T000000Z");
}

TEST(AwsSignature, EncodesAllButUnreservedBytes) {
  EXPECT_EQ(uri_encoded("a/B 1~\xe1\x88\xb4"), "a%2FB%201~%E1%88%B4");
  EXPECT_EQ(uri_encoded("a/b", "/"), "a/b");
}

// RFC 4231, test cases 1, 2 and 6.
TEST(AwsSignature, HmacIsThatOfTheStandard) {
  const std::string key(20, '\x0b'), long_key(131, '\xaa');
  EXPECT_EQ(hmac_sha256(bytes_of(key), "Hi There").hex(),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac_sha256(bytes_of("Jefe"), "what do ya want for nothing?").hex(),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_sha256(bytes_of(long_key), "Test Using Larger Than Block-Size Key - Hash Key First").hex(),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

}  // namespace
}  // namespace weightcast
