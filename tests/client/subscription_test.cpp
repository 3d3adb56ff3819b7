#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <thread>

#include "tests/client/code_of.h"
#include "tests/client/scripted_daemon.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

local::VersionInstalled installed(std::uint64_t version) {
  return {.version = version, .path = "/versions/" + std::to_string(version), .digest = "abc"};
}

bool readable(int fd, int timeout_ms) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, timeout_ms) == 1;
}

struct SubscriptionTest : testing::Test {
  ScriptedDaemon daemon;
  wc::Subscription subscription{daemon.state_dir()};

  /// Answers whoever subscribes and acquires next with a pin, beside the test.
  void play_pin(std::uint64_t version) {
    daemon.play([this, version] {
      ASSERT_TRUE(daemon.receive());
      const auto acquire = daemon.receive();
      ASSERT_TRUE(acquire);
      daemon.send(installed(version), acquire->request_id);
    });
  }
};

TEST_F(SubscriptionTest, TellsVersionsAndWhenToLetGo) {
  daemon.play([&] {
    const auto request = daemon.receive();
    ASSERT_TRUE(request && request->get<local::SubscribeRequest>());
    const local::VersionPreparing preparing{.version = 4};
    daemon.send(preparing, request->request_id);
    daemon.send(installed(4), request->request_id);
  });
  const auto first = subscription.next(5s);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->kind, WC_EVENT_PREPARING);
  EXPECT_EQ(first->version, 4u);
  const auto second = subscription.next(5s);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->kind, WC_EVENT_INSTALLED);
  EXPECT_EQ(second->version, 4u);
  EXPECT_EQ(second->directory, "/versions/4");
  EXPECT_EQ(second->digest, "abc");
  EXPECT_FALSE(subscription.next(0ms));
}

TEST_F(SubscriptionTest, ItsDescriptorIsReadableForEachEvent) {
  EXPECT_FALSE(readable(subscription.fd(), 0));
  const auto request = daemon.receive();
  ASSERT_TRUE(request);
  // Both are read from the socket at once: the second one must not be forgotten.
  daemon.send(installed(1), request->request_id);
  daemon.send(installed(2), request->request_id);
  for (const std::uint64_t version : {1u, 2u}) {
    ASSERT_TRUE(readable(subscription.fd(), 5000)) << version;
    const auto event = subscription.next(0ms);
    ASSERT_TRUE(event) << version;
    EXPECT_EQ(event->version, version);
  }
  EXPECT_FALSE(subscription.next(0ms));
  EXPECT_FALSE(readable(subscription.fd(), 0));
}

TEST_F(SubscriptionTest, ConnectsAgainByItself) {
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const auto request = daemon.receive();
    ASSERT_TRUE(request && request->get<local::SubscribeRequest>()) << round;
    daemon.send(installed(round), request->request_id);
    const auto event = subscription.next(5s);
    ASSERT_TRUE(event && event->kind == WC_EVENT_INSTALLED) << round;
    EXPECT_EQ(event->version, round);
    daemon.end();
    ASSERT_TRUE(readable(subscription.fd(), 5000)) << "the end is something to be told";
    const auto gone = subscription.next(0ms);
    ASSERT_TRUE(gone) << round;
    EXPECT_EQ(gone->kind, WC_EVENT_DISCONNECTED);
    // Nobody need wait in next(): the descriptor says when it is time.
    ASSERT_TRUE(readable(subscription.fd(), 5000));
    EXPECT_FALSE(subscription.next(0ms));
  }
}

TEST(Subscription, TriesLessAndLessOftenWhileThereIsNoDaemon) {
  auto daemon = std::make_unique<ScriptedDaemon>();
  wc::Subscription subscription(daemon->state_dir());
  ASSERT_TRUE(daemon->receive());
  const auto start = std::chrono::steady_clock::now();
  daemon.reset();
  const auto gone = subscription.next(5s);
  ASSERT_TRUE(gone && gone->kind == WC_EVENT_DISCONNECTED);
  // After 50, 150, 350 and 750 ms, or later on a busy host.
  for (const auto not_before : {50ms, 150ms, 350ms, 750ms}) {
    ASSERT_TRUE(readable(subscription.fd(), 30'000));
    EXPECT_GE(std::chrono::steady_clock::now() - start, not_before);
    EXPECT_FALSE(subscription.next(0ms));
  }
}

TEST_F(SubscriptionTest, AcquiresAndReleases) {
  daemon.play([&] {
    const auto subscribed = daemon.receive();
    const auto acquire = daemon.receive();
    ASSERT_TRUE(subscribed && acquire && acquire->get<local::AcquireRequest>());
    EXPECT_EQ(as<local::AcquireRequest>(*acquire).version, 0u);
    daemon.send(installed(8), subscribed->request_id);  // comes between
    daemon.send(installed(7), acquire->request_id);
  });
  const wc::Event pinned = subscription.acquire();
  EXPECT_EQ(pinned.version, 7u);
  EXPECT_EQ(pinned.directory, "/versions/7");
  ASSERT_TRUE(readable(subscription.fd(), 0)) << "what came between is still to be told";
  EXPECT_EQ(subscription.next(0ms)->version, 8u);
  subscription.release(7);
  const auto release = daemon.receive();
  ASSERT_TRUE(release && release->get<local::ReleaseRequest>());
  EXPECT_EQ(as<local::ReleaseRequest>(*release).version, 7u);
  EXPECT_EQ(code_of([&] { subscription.release(7); }), WC_NOT_FOUND) << "it was released already";
}

// Nobody holds the pin whose answer came too late, so it is given back.
TEST_F(SubscriptionTest, APinThatComesAfterItsTimeIsGivenBack) {
  EXPECT_EQ(code_of([&] { return subscription.acquire(3, 20ms); }), WC_TIMED_OUT) << "nobody answers";
  ASSERT_TRUE(daemon.receive());
  const auto acquire = daemon.receive();
  ASSERT_TRUE(acquire);
  daemon.send(installed(3), acquire->request_id);
  EXPECT_FALSE(subscription.next(50ms));
  const auto release = daemon.receive();
  ASSERT_TRUE(release && release->get<local::ReleaseRequest>());
  EXPECT_EQ(as<local::ReleaseRequest>(*release).version, 3u);
}

TEST_F(SubscriptionTest, PinsOfALostConnectionAreReleasedByItsEnd) {
  play_pin(3);
  static_cast<void>(subscription.acquire(3));
  daemon.play([&] { daemon.end(); });
  const auto gone = subscription.next(5s);
  ASSERT_TRUE(gone && gone->kind == WC_EVENT_DISCONNECTED);
  EXPECT_NO_THROW(subscription.release(3));
  // Another one connects at once, and nothing is left that would wake the caller.
  play_pin(4);
  EXPECT_EQ(subscription.acquire(4).version, 4u);
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(readable(subscription.fd(), 0));
}

TEST_F(SubscriptionTest, AcquireConnectsAgainByItself) {
  ASSERT_TRUE(daemon.receive());
  daemon.end();
  daemon.play([&] {
    const auto subscribed = daemon.receive();
    const auto acquire = daemon.receive();
    ASSERT_TRUE(subscribed && subscribed->get<local::SubscribeRequest>());
    ASSERT_TRUE(acquire && acquire->get<local::AcquireRequest>());
    daemon.send(installed(6), subscribed->request_id);
    daemon.send(installed(6), acquire->request_id);
  });
  EXPECT_EQ(subscription.acquire(6).version, 6u);
  ASSERT_TRUE(readable(subscription.fd(), 0)) << "the end is still to be told";
  EXPECT_EQ(subscription.next(0ms)->kind, WC_EVENT_DISCONNECTED) << "with which earlier pins have gone";
  EXPECT_EQ(subscription.next(0ms)->version, 6u);
  EXPECT_FALSE(subscription.next(0ms));
}

TEST(Subscription, AcquireSaysThatNoDaemonRunsAndRecoversLater) {
  auto daemon = std::make_unique<ScriptedDaemon>();
  wc::Subscription subscription(daemon->state_dir());
  ASSERT_TRUE(daemon->receive());
  daemon.reset();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(code_of([&] { return subscription.acquire(6); }), WC_NOT_FOUND);
  EXPECT_EQ(subscription.next(0ms)->kind, WC_EVENT_DISCONNECTED);
  ASSERT_TRUE(readable(subscription.fd(), 5000)) << "next() tries again by itself";
}

TEST_F(SubscriptionTest, CancelEndsNext) {
  std::thread other([&] {
    std::this_thread::sleep_for(50ms);
    subscription.cancel();
  });
  EXPECT_EQ(code_of([&] { return subscription.next(20s); }), WC_CANCELLED);
  other.join();
}

TEST_F(SubscriptionTest, WhatTheDaemonRefusesIsAnError) {
  const auto request = daemon.receive();
  ASSERT_TRUE(request);
  daemon.send(error_reply(Errc::kNotAllowed, "not here"), request->request_id);
  EXPECT_EQ(code_of([&] { return subscription.next(5s); }), WC_NOT_ALLOWED);
}

TEST(Subscription, ChangesAreOfAnAcquiredVersionAndOfKnownFlags) {
  ScriptedDaemon daemon;
  wc_subscription* subscription = nullptr;
  ASSERT_EQ(wc_subscribe(daemon.state_dir().c_str(), 5000, &subscription, nullptr), WC_OK);
  wc_change_list* list = nullptr;
  wc_error error = WC_INIT(error);
  EXPECT_EQ(wc_changes(subscription, 1, "digest", 2, 2u, 1000, &list, &error), WC_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message).find("unknown flags"), std::string::npos);
  for (const std::uint32_t flags : {0u, std::uint32_t{WC_OLD_VALUES}}) {
    EXPECT_EQ(wc_changes(subscription, 1, "digest", 2, flags, 1000, &list, &error), WC_NOT_FOUND);
    EXPECT_EQ(list, nullptr);
  }
  EXPECT_EQ(wc_changes(subscription, 1, nullptr, 2, 0, 1000, &list, &error), WC_INVALID_ARGUMENT);
  EXPECT_EQ(wc_change_list_count(nullptr), 0u);
  EXPECT_EQ(wc_change_list_at(nullptr, 0), nullptr);
  wc_change_list_close(nullptr);
  wc_subscription_close(subscription);
}

}  // namespace
}  // namespace weightcast
