#include "transport/node/members/member_accounts.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/transport/security/cluster_keys.h"
#include "transport/io/uv_loop.h"
#include "transport/node/members/enrolment_desk.h"
#include "transport/node/members/log_allowance.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMiBBytes = 1024 * 1024;

TEST(MemberAccount, MayTakeItsBurstAtOnceAndThenAMebibyteASecondOnAllItsConnections) {
  MemberAccounts accounts;
  Instant now{1h};
  std::size_t taken = 0;
  // It says as much as it can for a minute, and dials anew with each message.
  for (const Instant end = now + 60s; now < end;) {
    MemberAccount& account = accounts.open(ConnId{taken + 1}, "greedy");
    if (account.is_held(now)) {
      now = account.held_until;
      continue;
    }
    static_cast<void>(account.charge(now, kMiBBytes, {}));
    accounts.close(ConnId{taken + 1});
    ++taken;
  }
  EXPECT_GE(taken, 48u + 55u);
  EXPECT_LE(taken, 48u + 62u);
  EXPECT_FALSE(accounts.open(ConnId{1'000'000}, "another").is_held(now));
}

TEST(MemberAccount, MayUseATenthOfTheProcessorAndIsNeverLeftUnreadForLong) {
  MemberAccount account;
  Instant now{1h};
  Duration used{};
  for (const Instant end = now + 60s; now < end;) {
    used += 20ms;
    if (!account.charge(now, 100, 20ms)) continue;
    EXPECT_LE(account.held_until - now, 2s);
    now = account.held_until;
  }
  EXPECT_LE(used, 60s / 10 + 600ms);
  EXPECT_TRUE(account.charge(now, 100, 1h));
  EXPECT_LE(account.held_until - now, 2s) << "an origin takes who is silent for 5 s for lost";
}

TEST(MemberAccount, AWorkerThatReportsAndSubscribesAsItShouldIsNeverHeldBack) {
  MemberAccount account;
  Instant now{1h};
  // 64 stripes of a payload of 400,000 chunks, each with its bitmap; then reports.
  for (int stripe = 0; stripe < 64; ++stripe) EXPECT_FALSE(account.charge(now, 50'000, 1ms));
  for (int i = 0; i < 10'000; ++i, now += 8ms) EXPECT_FALSE(account.charge(now, 400, 50us));
}

TEST(LogAllowance, OnePeerWritesNoMoreThanTenMegabytesADayWhateverItDoes) {
  LogAllowance allowance;
  Instant now{1h};
  std::uint64_t bytes = 0, lines = 0, told = 0;
  constexpr std::uint64_t kLines = 100 * 86'400;
  constexpr std::size_t kLineBytes = 1100;
  for (std::uint64_t i = 0; i < kLines; ++i, now += 10ms) {
    const std::uint64_t left_out = allowance.left_out("greedy");
    if (!allowance.admit(now, "greedy", kLineBytes)) continue;
    bytes += kLineBytes;
    told += left_out;
    ++lines;
  }
  EXPECT_LE(bytes, 10'000'000u / 2) << "the audit's own lines take from it, too";
  EXPECT_GE(lines, 1000u);
  EXPECT_LE(lines + told, kLines);
  EXPECT_GE(lines + told, kLines - 3000) << "each line says how many were left out before it";
  EXPECT_EQ(allowance.left_out("another"), 0u);
  EXPECT_TRUE(allowance.admit(now, "another", 100));
}

TEST(LogAllowance, ManyNamesShareWhatIsLeft) {
  LogAllowance allowance;
  const Instant now{1h};
  std::uint64_t lines = 0;
  for (std::size_t i = 0; i < 2 * LogAllowance::kPeersMax; ++i) {
    lines += allowance.admit(now, std::to_string(i), 140) ? 1 : 0;
  }
  EXPECT_LE(lines, LogAllowance::kPeersMax + std::size_t(LogAllowance::kBurstBytes) / 140);
}

TEST(EnrolmentDesk, GuessesFromAHostCostNoEnrolmentFromThere) {
  const ClusterKeys cluster;
  const auto token = cluster.open().make_token({"w*", 3, unix_now_s() + 600, 30}, unix_now_s());
  ASSERT_TRUE(token.has_value()) << token.error().message();
  UvLoop loop(1);
  Jobs jobs(loop);
  EnrolmentDesk desk(jobs, cluster.directory());
  const Applicant machine;
  const auto request = [&](const std::string& name, bool known, bool right) {
    const auto text = [](const auto& bytes, bool same) {
      return same ? std::string(chars_of(bytes)) : std::string(bytes.size(), 'x');
    };
    return EnrolmentRequest{text(token->id, known), text(token->secret, right), name, "host", machine.key_request()};
  };
  std::vector<Errc> refused;
  std::vector<std::string> enrolled;
  int left = 0;
  const auto ask = [&](EnrolmentRequest asked) {
    ++left;
    desk.handle(std::move(asked), "192.0.2.1", [&](Result<Enrolled> made) {
      made.has_value() ? enrolled.push_back(made->name) : refused.push_back(made.error().code);
      if (--left == 0) loop.stop();
    });
  };
  // More than may begin or wait, of either kind, on both sides of the honest ones.
  for (int i = 0; i < 300; ++i) ask(request("g", i % 2 == 0, false));
  for (int i = 1; i <= 3; ++i) ask(request("w" + std::to_string(i), true, true));
  for (int i = 0; i < 300; ++i) ask(request("g", i % 2 == 0, false));
  loop.run();
  EXPECT_EQ(enrolled, (std::vector<std::string>{"w1", "w2", "w3"}));
  EXPECT_EQ(refused, std::vector<Errc>(600, Errc::kNotAllowed));
}

TEST(EnrolmentAllowance, AHostThatAsksInVainKeepsNobodyElseOut) {
  EnrolmentAllowance allowance;
  Instant now{1h};
  int begun = 0;
  for (int i = 0; i < 600 * 10; ++i, now += Duration(10s) / 6000) begun += allowance.spend(now, "192.0.2.1") ? 1 : 0;
  EXPECT_NEAR(begun, EnrolmentAllowance::kBurstOfHost + 10 * EnrolmentAllowance::kPerSecondOfHost, 2);
  for (int machine = 0; machine < 8; ++machine) {
    EXPECT_TRUE(allowance.spend(now, "192.0.2." + std::to_string(10 + machine)));
  }
}

}  // namespace
}  // namespace weightcast
