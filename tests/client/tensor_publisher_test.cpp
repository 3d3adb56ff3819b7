#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "client/client.h"
#include "tests/client/scripted_daemon.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct TensorPublisherTest : testing::Test {
  ScriptedDaemon daemon;
  TensorPublisher publisher = [this] {
    auto opened = TensorPublisher::open(daemon.state_dir());
    EXPECT_TRUE(opened.has_value());
    return std::move(*opened);
  }();

  Status publish(std::uint64_t version, char value, Duration timeout) {
    const std::string bytes(1000, value);
    const TensorSource tensor{{.name = "w", .dtype = "U8", .shape = {1000}, .size_bytes = 1000},
                              std::as_bytes(std::span(bytes))};
    PublishOptions options;
    options.timeout = timeout;
    return publisher.publish(Version{version}, {&tensor, 1}, options);
  }
};

// The origin reads version 1 slowly: whatever the trainer tries meanwhile, the bytes stay those of version 1.
TEST_F(TensorPublisherTest, DoesNotWriteWhatTheOriginMayStillBeReading) {
  ASSERT_TRUE(publish(1, 'a', seconds(5)).has_value());
  const auto first = daemon.receive();
  ASSERT_TRUE(first);
  const std::string shared = first->publish_request().path();
  const std::string version_1 = read_all(shared);
  ASSERT_NE(version_1.find(std::string(1000, 'a')), std::string::npos);

  for (int attempt = 0; attempt < 3; ++attempt) {
    const Status second = publish(2, 'b', milliseconds(20));
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, Errc::kTimedOut);
    EXPECT_EQ(read_all(shared), version_1) << attempt;
  }
  EXPECT_EQ(publisher.reserve(1 << 20).error().code, Errc::kBusy);
  EXPECT_EQ(read_all(shared), version_1);

  daemon.send(taken_reply(1), first->request_id());
  ASSERT_TRUE(publish(2, 'b', seconds(5)).has_value());
  const auto second = daemon.receive();
  ASSERT_TRUE(second);
  EXPECT_NE(read_all(second->publish_request().path()).find(std::string(1000, 'b')), std::string::npos);
}

TEST_F(TensorPublisherTest, DoesNotWriteAfterTheDaemonsEndEither) {
  ASSERT_TRUE(publish(1, 'a', seconds(5)).has_value());
  const auto first = daemon.receive();
  ASSERT_TRUE(first);
  const std::string version_1 = read_all(first->publish_request().path());
  daemon.end();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Status second = publish(2, 'b', milliseconds(100));
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, Errc::kClosed);
    EXPECT_EQ(read_all(first->publish_request().path()), version_1);
  }
}

TEST_F(TensorPublisherTest, ARefusalFreesTheMemoryAndIsTold) {
  ASSERT_TRUE(publish(1, 'a', seconds(5)).has_value());
  const auto first = daemon.receive();
  ASSERT_TRUE(first);
  daemon.send(error_reply(Errc::kAlreadyExists, "not greater"), first->request_id());
  const Status told = publish(2, 'b', seconds(5));
  ASSERT_FALSE(told.has_value());
  EXPECT_EQ(told.error().code, Errc::kAlreadyExists);
  EXPECT_TRUE(publish(2, 'b', seconds(5)).has_value());
}

TEST_F(TensorPublisherTest, AnOutcomeThatNobodyWaitedForIsNotTheNextOnes) {
  ASSERT_TRUE(publish(1, 'a', seconds(5)).has_value());
  const auto first = daemon.receive();
  ASSERT_TRUE(first);
  daemon.send(taken_reply(1), first->request_id());
  daemon.send(result_reply(1), first->request_id());
  ASSERT_TRUE(publish(2, 'b', seconds(5)).has_value());
  const auto second = daemon.receive();
  ASSERT_TRUE(second);
  daemon.send(taken_reply(2), second->request_id());
  daemon.send(result_reply(2), second->request_id());
  const auto outcome = publisher.wait();
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message();
  EXPECT_EQ(outcome->version, Version{2});
}

TEST_F(TensorPublisherTest, MemoryThatCannotBeHadIsAnErrorEachTime) {
  const std::string byte(1, 'x');
  TensorSource tensor{{.name = "w", .dtype = "U8", .shape = {1}, .size_bytes = 1}, std::as_bytes(std::span(byte))};
  EXPECT_FALSE(publisher.reserve(std::uint64_t{1} << 60).has_value());
  tensor.info.name = "\xff";
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Status status = publisher.publish(Version{1}, {&tensor, 1}, {});
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, Errc::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weightcast
