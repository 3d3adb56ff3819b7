#include "transport/archive/aws_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace weightcast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::map<std::string, std::string>;

constexpr const char* kCredentials = R"(# keys
[default]
aws_access_key_id = D
aws_secret_access_key=ds
[other]
aws_access_key_id = O
aws_secret_access_key = os
aws_session_token = ot
[half]
aws_access_key_id = H
)";
constexpr const char* kConfig = R"([default]
region = eu-west-1
[profile other]
region = eu-west-2
endpoint_url = https://s3.example.net
s3 =
  region = nested
)";

Result<AwsSettings> settings(const Variables& variables, bool with_files = true) {
  const AwsFiles files{"CRED", "CONF", with_files ? std::optional<std::string>(kCredentials) : std::nullopt,
                       with_files ? std::optional<std::string>(kConfig) : std::nullopt};
  return find_aws_settings(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      files);
}

TEST(AwsSettings, EnvironmentComesFirst) {
  const auto found = settings({{"AWS_ACCESS_KEY_ID", "E"}, {"AWS_SECRET_ACCESS_KEY", "es"}, {"AWS_REGION", "r"}});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->credentials->access_key, "E");
  EXPECT_EQ(found->credentials->session_token, "");
  EXPECT_EQ(found->region, "r");
}

TEST(AwsSettings, ThenTheProfile) {
  const auto found = settings({});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->credentials->access_key, "D");
  EXPECT_EQ(found->credentials->secret_key, "ds");
  EXPECT_EQ(found->region, "eu-west-1");
  const auto other = settings({{"AWS_PROFILE", "other"}});
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->credentials->access_key, "O");
  EXPECT_EQ(other->credentials->session_token, "ot");
  EXPECT_EQ(other->region, "eu-west-2");
  EXPECT_EQ(other->endpoint, "https://s3.example.net");
}

TEST(AwsSettings, ThenAService) {
  const auto instance = settings({}, false);
  ASSERT_TRUE(instance.has_value());
  EXPECT_FALSE(instance->credentials);
  EXPECT_EQ(instance->service->kind, CredentialService::Kind::kInstance);
  EXPECT_EQ(instance->region, "us-east-1");
  EXPECT_FALSE(settings({{"AWS_EC2_METADATA_DISABLED", "true"}}, false)->service);
  const auto container = settings({{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x"}}, false);
  EXPECT_EQ(container->service->url, "http://169.254.170.2/v2/x");
  const auto full = settings(
      {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/c"}, {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "t"}},
      false);
  EXPECT_EQ(full->service->authorization, "t");
  EXPECT_FALSE(settings({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.net/c"}}, false).has_value());
  EXPECT_FALSE(settings({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.example.net.evil"}}, false).has_value());
}

TEST(AwsSettings, HalfAKeyIsAnErrorThatShowsNone) {
  const auto half = settings({{"AWS_SECRET_ACCESS_KEY", "hidden"}});
  ASSERT_FALSE(half.has_value());
  EXPECT_THAT(half.error().detail, Not(HasSubstr("hidden")));
  EXPECT_FALSE(settings({{"AWS_PROFILE", "half"}}).has_value());
  EXPECT_THAT(settings({{"AWS_PROFILE", "missing"}}).error().detail, HasSubstr("[profile missing]"));
}

TEST(AwsSettings, LentCredentialsHaveAnEnd) {
  const auto lent = parse_lent_credentials(
      R"({"Code":"Success","AccessKeyId":"A","SecretAccessKey":"B","Token":"C","Expiration":"2015-08-30T12:36:00Z"})");
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(lent->credentials.session_token, "C");
  EXPECT_EQ(lent->expires_unix_s, 1440938160);
  for (const char* text : {"", "[]", "{}", R"({"AccessKeyId":1,"SecretAccessKey":"B"})",
                           R"({"AccessKeyId":"A","SecretAccessKey":"B","Expiration":"soon"})"}) {
    EXPECT_FALSE(parse_lent_credentials(text).has_value()) << text;
  }
}

TEST(S3Place, IsABucketAndAPrefix) {
  EXPECT_EQ(parse_s3_place("s3://bucket")->prefix, "");
  EXPECT_EQ(parse_s3_place("s3://bucket/a/b/")->prefix, "a/b/");
  EXPECT_EQ(parse_s3_place("s3://bucket/a")->bucket, "bucket");
  for (const char* text :
       {"s3://", "s3:///a", "s3://Bucket/a", "s3://b/a", "s3://bucket/a//b", "s3://bucket/../b", "s3://bucket/."}) {
    EXPECT_FALSE(parse_s3_place(text).has_value()) << text;
  }
}

TEST(S3Place, BucketsStandInTheHostOrInThePath) {
  AwsSettings settings;
  settings.region = "eu-west-1";
  const auto in_host = s3_endpoint(*parse_s3_place("s3://bucket/a b"), settings);
  EXPECT_EQ(in_host->origin, "https://bucket.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(in_host->path, "/a%20b/");
  const auto dotted = s3_endpoint(*parse_s3_place("s3://my.bucket"), settings);
  EXPECT_EQ(dotted->host, "s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(dotted->path, "/my.bucket/");
  settings.endpoint = "http://localhost:9000/";
  const auto own = s3_endpoint(*parse_s3_place("s3://bucket/a"), settings);
  EXPECT_EQ(own->origin, "http://localhost:9000");
  EXPECT_EQ(own->host, "localhost:9000");
  EXPECT_EQ(own->path, "/bucket/a/");
  for (const char* wrong : {"localhost:9000", "ftp://host", "https://", "https://u:p@host", "https://host/path"}) {
    settings.endpoint = wrong;
    EXPECT_FALSE(s3_endpoint(*parse_s3_place("s3://bucket"), settings).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace weightcast
