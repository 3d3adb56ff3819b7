#include "transport/node/members/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/settings/log_writer.h"
#include "transport/io/log.h"

namespace weightcast {
namespace {

/// What a captured stderr has, all of it: the log is written by a thread of its own.
std::string captured_log() {
  flush_log(std::chrono::seconds(60));
  return testing::internal::GetCapturedStderr();
}

using namespace std::chrono_literals;
using ::testing::HasSubstr;

struct AuditTest : testing::Test {
  static void SetUpTestSuite() { set_up_log("warning", {LogFormat::kText, "origin"}); }

  /// What is logged when a peer is turned away `times` times at `now`.
  std::string note(int times, Refusal reason = Refusal::kCertificate, const std::string& why = "it has expired") {
    testing::internal::CaptureStderr();
    for (int i = 0; i < times; ++i) {
      audit.note(now, reason, who, "192.0.2.7", fail(Errc::kNotAllowed, Op::kVerify, why));
    }
    return captured_log();
  }
  static long lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

  LogAllowance allowance;
  Audit audit{allowance};
  Instant now{1h};
  std::optional<PeerIdentity> who;
};

TEST_F(AuditTest, SaysWhoFromWhereAndWhy) {
  EXPECT_THAT(note(1), HasSubstr("refused, certificate: 192.0.2.7: it has expired\n"));
  who.emplace();
  who->name = "gpu-7";
  EXPECT_THAT(note(1, Refusal::kIdentity), HasSubstr("refused, identity: worker gpu-7 at 192.0.2.7: it has expired\n"));
  who->role = Role::kStranger;
  EXPECT_THAT(note(1, Refusal::kEnrolment), HasSubstr("refused, enrolment: 192.0.2.7: it has expired\n"));
}

TEST_F(AuditTest, SaysFromWhereOnce) {
  for (const char* before : {"192.0.2.7: ", "from 192.0.2.7: ", "to 192.0.2.7: "}) {
    EXPECT_THAT(note(1, Refusal::kHandshake, std::string(before) + "it closed"),
                HasSubstr("refused, handshake: 192.0.2.7: it closed\n"));
  }
  EXPECT_THAT(note(1, Refusal::kHandshake, "192.0.2.77: it closed"), HasSubstr("192.0.2.7: 192.0.2.77: it closed\n"));
}

TEST_F(AuditTest, AFloodIsCountedAndNotLogged) {
  EXPECT_EQ(lines(note(100'000)), long(Audit::kBurst));
  EXPECT_EQ(audit.count(Refusal::kCertificate), 100'000u);
  EXPECT_EQ(audit.count(Refusal::kIdentity), 0u);
  EXPECT_EQ(lines(note(1, Refusal::kIdentity)), 1) << "each reason for itself";
  now += 2s;
  EXPECT_THAT(note(1), HasSubstr("(99990 more since the last line)"));
  EXPECT_EQ(note(1), "");
  now += 1h;
  EXPECT_THAT(note(1), HasSubstr("(1 more since the last line)"));
  EXPECT_EQ(lines(note(1000)), long(Audit::kBurst) - 1);
}

TEST(Refusal, EachHasANameOfItsOwn) {
  EXPECT_EQ(std::set(kRefusalNames.begin(), kRefusalNames.end()).size(), kRefusalNames.size());
  EXPECT_EQ(to_string(Refusal::kHandshake), "handshake");
  EXPECT_EQ(to_string(Refusal::kRevocations), "revocations");
}

}  // namespace
}  // namespace weightcast
