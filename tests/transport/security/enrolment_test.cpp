#include "transport/security/enrolment.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files/posix_file_system.h"
#include "base/text.h"
#include "tests/transport/security/cluster_keys.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

EnrolmentRequest request_with(const JoinToken& token, const Applicant& machine, const std::string& name = "") {
  return {.token_id = std::string(chars_of(token.id)),
          .token_secret = std::string(chars_of(token.secret)),
          .name = name,
          .host_name = "host-9",
          .key = machine.key_request()};
}

class Enrolment : public ::testing::Test {
 protected:
  [[nodiscard]] JoinToken token(const std::string& names, std::uint32_t uses = 1, std::int64_t minutes = 60,
                                std::uint32_t days = 30) const {
    const auto made = cluster.open().make_token({names, uses, now + minutes * 60, days}, now);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return *made;
  }
  [[nodiscard]] Result<Enrolled> ask(const EnrolmentRequest& request, std::int64_t later_s = 0) const {
    return enrol(cluster.directory(), request, now + later_s);
  }
  /// Why it is refused; "" if it is not.
  [[nodiscard]] std::string refusal(const EnrolmentRequest& request, std::int64_t later_s = 0) const {
    const auto made = ask(request, later_s);
    if (made.has_value()) return "";
    EXPECT_EQ(made.error().op, Op::kVerify) << made.error().message();
    return made.error().detail;
  }

  ClusterKeys cluster;
  Applicant machine;
  const std::int64_t now = cluster.now_unix_s;
};

TEST_F(Enrolment, MakesAWorkerOfAMachineWithAToken) {
  const JoinToken used = token("w1");
  const auto made = ask(request_with(used, machine));
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(made->name, "w1");
  EXPECT_THAT(made->certificates, ::testing::Not(HasSubstr("PRIVATE KEY")));
  const auto keys = machine.keys_from(made->certificates, used, now);
  ASSERT_TRUE(keys.has_value()) << keys.error().message();
  EXPECT_EQ(keys->info.name, "w1");
  EXPECT_EQ(keys->role(), Role::kWorker);
  EXPECT_EQ(keys->info.not_after_unix_s, now + 30 * kDay_s);
  // As the file that the machine keeps.
  const auto again = parse_node_keys(to_text(*keys).text(), "file", now);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  // The answer is of no use without the private key.
  EXPECT_FALSE(Applicant().keys_from(made->certificates, used, now).has_value());
}

TEST_F(Enrolment, ATokenCountsAsOftenAsItSays) {
  const JoinToken twice = token("w*", 2);
  EXPECT_EQ(refusal(request_with(twice, machine, "w1")), "");
  EXPECT_EQ(refusal(request_with(twice, machine, "w2")), "");
  EXPECT_THAT(refusal(request_with(twice, machine, "w3")), HasSubstr("the join token does not count"));
}

TEST_F(Enrolment, ATokenCountsUntilItExpires) {
  const JoinToken brief = token("w*", 9, 10);
  EXPECT_EQ(refusal(request_with(brief, machine, "w1"), 600), "");
  EXPECT_THAT(refusal(request_with(brief, machine, "w2"), 601), HasSubstr("the join token does not count"));
}

TEST_F(Enrolment, NeitherAGuessNorAnotherTokensSecretCounts) {
  const JoinToken one = token("w1"), other = token("w2");
  EnrolmentRequest request = request_with(one, machine);
  request.token_secret = chars_of(other.secret);
  EXPECT_THAT(refusal(request), HasSubstr("the join token does not count"));
  for (const std::string& secret :
       {std::string(), std::string(16, '\0'), std::string(chars_of(one.secret).substr(1))}) {
    request.token_secret = secret;
    EXPECT_THAT(refusal(request), HasSubstr("the join token does not count"));
  }
  request.token_id = "unknown";
  EXPECT_THAT(refusal(request), HasSubstr("the join token does not count"));
  EXPECT_EQ(refusal(request_with(one, machine)), "") << "attempts have not used it up";
}

TEST_F(Enrolment, TheNameIsTheTokensOrFitsItsPattern) {
  EXPECT_THAT(refusal(request_with(token("w1"), machine, "w2")), HasSubstr("is for w1, not for w2"));
  const JoinToken free = token("*-9", 3);
  const auto by_host = ask(request_with(free, machine));
  ASSERT_TRUE(by_host.has_value());
  EXPECT_EQ(by_host->name, "host-9");
  EXPECT_THAT(refusal(request_with(free, machine, "host-8")), HasSubstr("is for *-9, not for host-8"));
  EXPECT_THAT(refusal(request_with(free, machine, "a b-9")), HasSubstr("choose one with --name"));
}

TEST_F(Enrolment, ANameThatHasKeysIsNotGivenTwice) {
  static_cast<void>(cluster.issue("w1"));
  const JoinToken free = token("*", 9);
  EXPECT_THAT(refusal(request_with(free, machine, "w1")), HasSubstr("w1 has keys"));
  EXPECT_THAT(refusal(request_with(free, machine, "origin")), HasSubstr("origin has keys"));
  EXPECT_THAT(refusal(request_with(free, machine, kEnrolmentName)), HasSubstr("not for enrolment"));
  EXPECT_EQ(refusal(request_with(free, machine, "w2")), "");
  EXPECT_THAT(refusal(request_with(free, machine, "w2")), HasSubstr("w2 has keys"));
  cluster.revoke("w2");
  EXPECT_EQ(refusal(request_with(free, machine, "w2")), "");
}

TEST_F(Enrolment, AMachineProvesThatItHasThePrivateKey) {
  const JoinToken used = token("w1");
  EnrolmentRequest request = request_with(used, machine);
  request.key.back() = static_cast<char>(request.key.back() ^ 1);  // in the signature
  EXPECT_THAT(refusal(request), HasSubstr("not signed with its key"));
  for (std::size_t size = 0; size < request.key.size(); ++size) {
    EnrolmentRequest cut = request_with(used, machine);
    cut.key.resize(size);
    EXPECT_NE(refusal(cut), "");
  }
  request.key = std::string(EnrolmentRequest::kKeyBytesMax + 1, 'x');
  EXPECT_THAT(refusal(request), HasSubstr("too long"));
  EXPECT_EQ(refusal(request_with(used, machine)), "");
}

TEST_F(Enrolment, WhatIsOnTheDiskHoldsNoSecret) {
  const JoinToken made = token("w1");
  PosixFileSystem files;
  const std::string text = *read_file(files, cluster.directory() + "/tokens.json", kMiB);
  std::string hex;
  for (const std::byte b : made.secret) hex += fmt::format("{:02x}", static_cast<unsigned>(b));
  EXPECT_THAT(text, ::testing::Not(HasSubstr(hex)));
  EXPECT_THAT(text, ::testing::Not(HasSubstr(to_text(made).text())));
  EXPECT_THAT(text, HasSubstr("secret_sha256"));
}

// An origin whose host holds no authority's key can enrol workers, and nothing else.
TEST_F(Enrolment, NeedsNoAuthoritysKeyAndMakesNothingButWorkers) {
  const JoinToken used = token("w1");
  std::filesystem::rename(cluster.directory() + "/authority.pem", cluster.temp().file("elsewhere"));
  EXPECT_EQ(refusal(request_with(used, machine)), "");
  const auto stolen = read_enrolment_key(cluster.directory() + "/enrolment.pem", now);
  ASSERT_TRUE(stolen.has_value());
  const UniqueKey key = make_key();
  const Between between{stolen->certificate.get()};
  for (const KeyUse use : {KeyUse::kWorker, KeyUse::kOrigin, KeyUse::kSigning, KeyUse::kEnrolment}) {
    const UniqueX509 made =
        make_certificate({use, "x", key.get(), now - 10, now + 1000}, stolen->certificate.get(), stolen->key.get());
    const auto vouched = check_chain(made.get(), between, stolen->authority.get(), now);
    EXPECT_EQ(vouched.has_value(), use == KeyUse::kWorker) << to_string(use);
  }
}

TEST_F(Enrolment, RevokingTheEnrolmentKeyEndsAllThatItMade) {
  const JoinToken used = token("w1");
  const auto made = ask(request_with(used, machine));
  ASSERT_TRUE(made.has_value());
  const auto keys = machine.keys_from(made->certificates, used, now);
  const auto vouched = check_chain(keys->certificate.get(), keys->issuers(), keys->authority.get(), now);
  ASSERT_TRUE(vouched.has_value());
  cluster.revoke(kEnrolmentName);
  const Revocations list = cluster.revocations(*keys);
  EXPECT_TRUE(std::ranges::any_of(vouched->serials, [&](const std::string& s) { return list.contains(s, now); }));
  // The next token brings another key.
  const JoinToken next = token("w2");
  const Applicant other;
  const auto after = ask(request_with(next, other));
  ASSERT_TRUE(after.has_value()) << after.error().message();
  const auto fresh = other.keys_from(after->certificates, next, now);
  const auto good = check_chain(fresh->certificate.get(), fresh->issuers(), fresh->authority.get(), now);
  EXPECT_TRUE(std::ranges::none_of(good->serials, [&](const std::string& s) { return list.contains(s, now); }));
}

TEST_F(Enrolment, ATokenIsBounded) {
  const auto order = [&](const std::string& names, std::uint32_t uses, std::int64_t seconds) {
    return cluster.open().make_token({names, uses, now + seconds, 30}, now).has_value();
  };
  EXPECT_FALSE(order("w1", 0, 60));
  EXPECT_FALSE(order("w1", TokenOrder::kUsesMax + 1, 60));
  EXPECT_FALSE(order("w1", 1, 0));
  EXPECT_FALSE(order("w1", 1, TokenOrder::kLifetimeMax_s + 1));
  EXPECT_FALSE(order("a b", 1, 60));
  EXPECT_FALSE(order("", 1, 60));
  for (std::size_t i = 0; i < OpenTokens::kTokensMax; ++i) ASSERT_TRUE(order("w1", 1, 60)) << i;
  EXPECT_FALSE(order("w1", 1, 60));
  const auto later = cluster.open().make_token({"w1", 1, now + 120, 30}, now + 61);
  EXPECT_TRUE(later.has_value()) << "those before have expired";
}

TEST(JoinToken, ReadsWhatItWrote) {
  JoinToken token;
  for (std::size_t i = 0; i < token.authority.bytes.size(); ++i) token.authority.bytes[i] = std::byte(200 + 7 * i);
  for (std::size_t i = 0; i < token.id.size(); ++i) token.id[i] = std::byte(i);
  token.secret.fill(std::byte{0xff});
  const std::string text = to_text(token).text();
  EXPECT_EQ(text.size(), 83u);
  const auto read = parse_join_token(text);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->authority, token.authority);
  EXPECT_EQ(read->id, token.id);
  EXPECT_EQ(read->secret, token.secret);
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(parse_join_token(text.substr(0, size)).has_value());
  EXPECT_FALSE(parse_join_token(text + "A").has_value());
  std::string other = text;
  other[7] = 'x';  // the form
  EXPECT_FALSE(parse_join_token(other).has_value());
  other = text;
  other[20] = '!';
  EXPECT_FALSE(parse_join_token(other).has_value());
}

}  // namespace
}  // namespace weightcast
