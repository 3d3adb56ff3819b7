#include "transport/archive/http_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/text.h"
#include "tests/result_matchers.h"
#include "tests/transport/archive/object_server.h"
#include "transport/archive/s3_requests.h"

namespace weightcast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Fault = ObjectServer::Fault;

constexpr StorageHttpLimits kLimits{.connect = std::chrono::milliseconds(5000),
                                    .stalled = std::chrono::seconds(1),
                                    .request = std::chrono::seconds(60),
                                    .attempts = 3,
                                    .backoff = std::chrono::milliseconds(2)};

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string sample(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  return text;
}

std::unique_ptr<StorageHttpClient> client() {
  auto made = StorageHttpClient::make(kLimits, "");
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(*made);
}

class HttpObjectsTest : public ::testing::Test {
 protected:
  HttpObjectsTest() : objects_(client(), std::move(*PlainRequests::make(server_.url()))) {}

  /// What a range of "thing" gives, and the error's code.
  Status read(std::uint64_t offset, std::uint64_t size, std::uint64_t object_bytes) {
    got_.clear();
    return objects_.read_range("thing", object_bytes, offset, size, [&](Bytes piece) -> Status {
      got_ += chars_of(piece);
      return {};
    });
  }

  ObjectServer server_;
  HttpObjects objects_;
  std::string got_;
};

TEST_F(HttpObjectsTest, StopEndsWhatWaitsForAServerThatStandsStill) {
  constexpr StorageHttpLimits kPatient{.stalled = std::chrono::seconds(600), .attempts = 3};
  HttpObjects patient(*StorageHttpClient::make(kPatient, ""), std::move(*PlainRequests::make(server_.url())));
  server_.put("thing", sample(100));
  server_.fail_next({Fault::kStill});
  std::thread stopper([&] {
    while (server_.requests().empty()) std::this_thread::yield();
    patient.stop();
  });
  const Status stopped = patient.read_range("thing", 100, 0, 10, [](Bytes) { return Status(); });
  stopper.join();
  EXPECT_FALSE(stopped.has_value());
  EXPECT_FALSE(patient.read("thing", 100).has_value());
  EXPECT_EQ(server_.requests().size(), 1u) << "nothing is tried again, or begun";
}

TEST_F(HttpObjectsTest, WritesAndReads) {
  const std::string text = sample(300'000);
  ASSERT_TRUE(objects_.write("thing", bytes_of(text)).has_value());
  EXPECT_EQ(server_.objects().at("thing"), text);
  EXPECT_EQ(*objects_.size_of("thing"), text.size());
  EXPECT_EQ(*objects_.size_of("nothing"), std::nullopt);
  EXPECT_EQ(*objects_.read("thing", text.size()), text);
  EXPECT_EQ(objects_.read("thing", text.size() - 1).error().code, Errc::kTooLarge);
  EXPECT_EQ(objects_.read("nothing", 10).error().code, Errc::kNotFound);
  ASSERT_TRUE(read(1000, 200'000, text.size()).has_value());
  EXPECT_EQ(got_, text.substr(1000, 200'000));
}

TEST_F(HttpObjectsTest, WhatMayPassIsTriedAgain) {
  server_.fail_next({Fault::kUnavailable, Fault::kDrop});
  ASSERT_THAT(objects_.write("thing", bytes_of("text")), Succeeds());
  server_.fail_next({Fault::kUnavailable, Fault::kUnavailable});
  EXPECT_EQ(*objects_.read("thing", 10), "text");
  server_.fail_next({Fault::kUnavailable, Fault::kUnavailable, Fault::kUnavailable});
  const auto failed = objects_.read("thing", 10);
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(), AllOf(HasSubstr("503"), HasSubstr("3 times"), HasSubstr(server_.url())));
}

TEST_F(HttpObjectsTest, ARangeThatIsCutGoesOnWhereItWas) {
  const std::string text = sample(400'000);
  server_.put("thing", text);
  // More often than one that does not come further may fail.
  server_.fail_next({Fault::kCut, Fault::kCut, Fault::kCut, Fault::kCut, Fault::kCut});
  ASSERT_THAT(read(100, 399'000, text.size()), Succeeds());
  EXPECT_EQ(got_, text.substr(100, 399'000));
  const auto requests = server_.requests();
  ASSERT_EQ(requests.size(), 6u);
  EXPECT_EQ(requests[0].headers.at("range"), "bytes=100-399099");
  EXPECT_EQ(requests[1].headers.at("range"), "bytes=199600-399099") << "nothing twice";
  EXPECT_TRUE(requests[1].headers.contains("if-match"));
}

TEST_F(HttpObjectsTest, AnObjectThatIsReplacedMeanwhileIsRefused) {
  const std::string text = sample(1000);
  server_.put("thing", text);
  ASSERT_TRUE(read(0, 100, text.size()).has_value());
  server_.put("thing", sample(1000) + "!");
  EXPECT_EQ(read(100, 100, text.size()).error().code, Errc::kCorrupt) << "by If-Match";
  server_.put("thing", text);
  server_.fail_next({Fault::kOtherEtag});
  const Status other = read(100, 100, text.size());
  EXPECT_EQ(other.error().code, Errc::kCorrupt) << "of a server that knows no If-Match";
  EXPECT_THAT(other.error().detail, HasSubstr("replaced"));
  EXPECT_TRUE(got_.empty());
}

TEST_F(HttpObjectsTest, AnswersThatAreNoSuchRangeAreRefused) {
  server_.put("thing", sample(1000));
  server_.fail_next({Fault::kWhole});
  EXPECT_EQ(read(10, 100, 1000).error().code, Errc::kUnsupported);
  server_.fail_next({Fault::kOtherRange});
  EXPECT_EQ(read(10, 100, 1000).error().code, Errc::kCorrupt);
  server_.fail_next({Fault::kOtherSize});
  EXPECT_EQ(read(10, 100, 1000).error().code, Errc::kCorrupt);
  EXPECT_TRUE(got_.empty());
  EXPECT_EQ(server_.requests().size(), 3u) << "trying again does not help";
}

TEST_F(HttpObjectsTest, AServerThatStandsStillIsGivenUp) {
  server_.put("thing", sample(1000));
  server_.fail_next({Fault::kStill});
  ASSERT_TRUE(read(0, 1000, 1000).has_value());
  server_.fail_next({Fault::kStill, Fault::kStill, Fault::kStill});
  EXPECT_EQ(read(0, 1000, 1000).error().code, Errc::kTimedOut);
}

TEST_F(HttpObjectsTest, RefusalsSayWhatToDoAndNothingThatWasSigned) {
  server_.fail_next({Fault::kForbidden});
  const auto refused = objects_.read("thing", 1000);
  EXPECT_EQ(refused.error().code, Errc::kNotAllowed);
  EXPECT_THAT(refused.error().detail, AllOf(HasSubstr("SignatureDoesNotMatch"), Not(HasSubstr("KEYID"))));
  server_.fail_next({Fault::kMoved});
  EXPECT_THAT(objects_.read("thing", 1000).error().detail, HasSubstr("address"));
}

TEST_F(HttpObjectsTest, NobodyThereIsAnErrorWithinItsBound) {
  HttpObjects nobody(client(), std::move(*PlainRequests::make("http://127.0.0.1:1/x")));
  const auto failed = nobody.read("thing", 10);
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_THAT(failed.error().detail, AllOf(HasSubstr("127.0.0.1"), HasSubstr("3 times")));
}

TEST(PlainRequests, RefusesWhatMessagesWouldShow) {
  for (const char* url : {"https://user:secret@host/path", "https://host/path?X-Amz-Signature=1", "https://host/#a",
                          "https://", "https://host/a b"}) {
    const auto made = PlainRequests::make(url);
    ASSERT_FALSE(made.has_value()) << url;
    EXPECT_THAT(made.error().detail, Not(HasSubstr("secret")));
  }
  EXPECT_EQ((*PlainRequests::make("https://host"))->url_of("a"), "https://host/a");
}

TEST(S3Requests, SignsWhatItSends) {
  ObjectServer server;
  const std::string origin = server.url().substr(0, server.url().rfind('/'));
  AwsSettings settings;
  settings.region = "eu-central-1";
  settings.endpoint = origin;
  settings.credentials = AwsCredentials{"AKID", "secret", "token"};
  auto endpoint = s3_endpoint(*parse_s3_place("s3://arch"), settings);
  ASSERT_TRUE(endpoint.has_value()) << endpoint.error().message();
  HttpObjects objects(client(), std::make_unique<S3Requests>(client(), *endpoint, settings));
  ASSERT_TRUE(objects.write("thing", bytes_of("text")).has_value());
  EXPECT_EQ(server.objects().at("thing"), "text");
  const auto headers = server.requests().front().headers;
  EXPECT_EQ(headers.at("x-amz-content-sha256"), content_digest_of(bytes_of("text")).hex());
  EXPECT_EQ(headers.at("x-amz-security-token"), "token");
  AwsRequest sent{"PUT", "/arch/thing", {}, {}, headers.at("x-amz-content-sha256")};
  for (const char* name : {"host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"}) {
    sent.headers.emplace_back(name, headers.at(name));
  }
  std::tm utc{};
  ASSERT_NE(::strptime(headers.at("x-amz-date").c_str(), "%Y%m%dT%H%M%SZ", &utc), nullptr);
  EXPECT_EQ(headers.at("authorization"),
            aws_authorization(sent, {"eu-central-1", "s3", ::timegm(&utc)}, *settings.credentials));
}

TEST(S3Requests, AsksAContainersServiceOnce) {
  ObjectServer server;
  server.put("credentials",
             R"({"AccessKeyId":"LENT","SecretAccessKey":"s","Token":"t","Expiration":"2999-01-01T00:00:00Z"})");
  const std::string origin = server.url().substr(0, server.url().rfind('/'));
  AwsSettings settings;
  settings.endpoint = origin;
  settings.service = CredentialService{CredentialService::Kind::kContainer, server.url() + "/credentials", "Basic x"};
  HttpObjects objects(
      client(), std::make_unique<S3Requests>(client(), *s3_endpoint(*parse_s3_place("s3://arch"), settings), settings));
  ASSERT_TRUE(objects.write("a", bytes_of("a")).has_value());
  ASSERT_TRUE(objects.write("b", bytes_of("b")).has_value());
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].headers.at("authorization"), "Basic x");
  EXPECT_THAT(requests[1].headers.at("authorization"), HasSubstr("Credential=LENT/"));
}

TEST(S3Requests, SaysWhereCredentialsAreLookedFor) {
  AwsSettings settings;
  settings.endpoint = "http://127.0.0.1:1";
  settings.service = CredentialService{CredentialService::Kind::kInstance, "http://127.0.0.1:1", ""};
  HttpObjects objects(
      client(), std::make_unique<S3Requests>(client(), *s3_endpoint(*parse_s3_place("s3://arch"), settings), settings));
  const auto failed = objects.read("a", 10);
  EXPECT_EQ(failed.error().code, Errc::kNotAllowed);
  EXPECT_THAT(failed.error().detail, AllOf(HasSubstr("AWS_ACCESS_KEY_ID"), HasSubstr("metadata")));
}

}  // namespace
}  // namespace weightcast
