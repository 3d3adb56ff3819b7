#include "transport/security/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/result_matchers.h"
#include "transport/security/revocations.h"

namespace weightcast {
namespace {

constexpr std::int64_t kNow_s = 1'800'000'000;

struct Keyed {
  UniqueKey key = make_key();
  UniqueX509 certificate;
};

Keyed make_authority() {
  Keyed made;
  made.certificate = make_certificate({KeyUse::kAuthority, "", made.key.get(), kNow_s - kDay_s, kNow_s + 100 * kDay_s},
                                      nullptr, made.key.get());
  return made;
}

Keyed issue(const Keyed& authority, KeyUse use, const std::string& name) {
  Keyed made;
  made.certificate = make_certificate({use, name, made.key.get(), kNow_s - kDay_s, kNow_s + kDay_s},
                                      authority.certificate.get(), authority.key.get());
  return made;
}

/// A certificate that `change` has altered before the authority signed it.
template <typename Change>
UniqueX509 issue_altered(const Keyed& authority, Change change) {
  Keyed made = issue(authority, KeyUse::kWorker, "w1");
  change(made.certificate.get());
  EXPECT_GT(X509_sign(made.certificate.get(), authority.key.get(), nullptr), 0);
  // As it arrives: OpenSSL remembers what it saw in the object before.
  unsigned char* der = nullptr;
  const int size = i2d_X509(made.certificate.get(), &der);
  const unsigned char* at = der;
  UniqueX509 arrived(d2i_X509(nullptr, &at, size));
  OPENSSL_free(der);
  EXPECT_NE(arrived, nullptr);
  return arrived;
}

void remove_extension(X509* certificate, int kind) {
  const int at = X509_get_ext_by_NID(certificate, kind, -1);
  ASSERT_GE(at, 0);
  X509_EXTENSION_free(X509_delete_ext(certificate, at));
}

void set_name(X509* certificate, int type, const std::string& text, int count = 1) {
  remove_extension(certificate, NID_subject_alt_name);
  UniqueGeneralNames names(GENERAL_NAMES_new());
  for (int i = 0; i < count; ++i) {
    GENERAL_NAME* name = GENERAL_NAME_new();
    ASN1_IA5STRING* bytes = ASN1_IA5STRING_new();
    ASN1_STRING_set(bytes, text.data(), static_cast<int>(text.size()));
    GENERAL_NAME_set0_value(name, type, bytes);
    sk_GENERAL_NAME_push(names.get(), name);
  }
  EXPECT_EQ(X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT), 1);
}

TEST(Certificate, SaysWhoItsHolderIs) {
  const Keyed authority = make_authority();
  const std::string longest = "n" + std::string(254, '-');
  for (const KeyUse use : {KeyUse::kOrigin, KeyUse::kWorker, KeyUse::kSigning}) {
    for (const std::string& name : {std::string("w1"), std::string("rack-7/host.example:9@x_y"), longest}) {
      const Keyed node = issue(authority, use, name);
      const auto info = read_certificate(node.certificate.get());
      ASSERT_TRUE(info.has_value()) << info.error().message();
      EXPECT_EQ(info->use, use);
      EXPECT_EQ(info->name, name);
      EXPECT_EQ(info->key, key_id(node.key.get()));
      EXPECT_EQ(info->cluster, cluster_of(authority.key.get()));
      EXPECT_EQ(info->not_before_unix_s, kNow_s - kDay_s);
      EXPECT_EQ(info->not_after_unix_s, kNow_s + kDay_s);
      EXPECT_TRUE(check_issued(node.certificate.get(), authority.certificate.get(), kNow_s).has_value());
    }
  }
}

TEST(Certificate, SaysWhereItsHolderMayBeDialled) {
  const Keyed authority = make_authority();
  const UniqueKey key = make_key();
  const std::vector<std::string> hosts{"gpu-1.example.net", "192.0.2.7", "2001:db8::7"};
  const UniqueX509 made = make_certificate({KeyUse::kWorker, "w1", key.get(), kNow_s - kDay_s, kNow_s + kDay_s, hosts},
                                           authority.certificate.get(), authority.key.get());
  const auto info = read_certificate(made.get());
  ASSERT_TRUE(info.has_value()) << info.error().message();
  EXPECT_EQ(info->name, "w1");
  EXPECT_EQ(info->addresses, hosts);
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"two words"}, std::vector<std::string>{""},
                                              std::vector<std::string>(kCertificateAddressesMax + 1, "h")}) {
    const UniqueX509 refused =
        make_certificate({KeyUse::kWorker, "w1", key.get(), kNow_s - kDay_s, kNow_s + kDay_s, bad},
                         authority.certificate.get(), authority.key.get());
    EXPECT_FALSE(read_certificate(refused.get()).has_value());
  }
}

TEST(Certificate, SerialsAndKeysNeverRepeat) {
  const Keyed authority = make_authority();
  const Keyed one = issue(authority, KeyUse::kWorker, "w1"), two = issue(authority, KeyUse::kWorker, "w1");
  const auto a = read_certificate(one.certificate.get()), b = read_certificate(two.certificate.get());
  EXPECT_NE(a->serial, b->serial);
  EXPECT_NE(a->key, b->key);
}

TEST(Certificate, CountsUntilItsLastSecond) {
  const Keyed authority = make_authority();
  const Keyed node = issue(authority, KeyUse::kWorker, "w1");
  const auto check = [&](std::int64_t now) {
    return check_issued(node.certificate.get(), authority.certificate.get(), now);
  };
  EXPECT_TRUE(check(kNow_s + kDay_s).has_value());
  EXPECT_TRUE(check(kNow_s - kDay_s).has_value());
  const Status late = check(kNow_s + kDay_s + 1), early = check(kNow_s - kDay_s - 1);
  EXPECT_THAT(late, FailsWith(Errc::kTimedOut, "expired on 2027-01-16 08:00 UTC"));
  EXPECT_THAT(early, FailsWith(Errc::kTimedOut));
}

TEST(Certificate, OfAnotherClusterIsRefusedByName) {
  const Keyed authority = make_authority(), other = make_authority();
  const Keyed node = issue(other, KeyUse::kOrigin, "origin");
  EXPECT_THAT(check_issued(node.certificate.get(), authority.certificate.get(), kNow_s),
              FailsWith(Errc::kNotAllowed, cluster_of(other.key.get()), cluster_of(authority.key.get())));
}

// A stranger copies the authority's names; only the signature tells.
TEST(Certificate, SignedByAStrangerUnderTheAuthoritysNameIsRefused) {
  const Keyed authority = make_authority();
  Keyed forged = issue(authority, KeyUse::kOrigin, "origin");
  const UniqueKey stranger = make_key();
  ASSERT_GT(X509_sign(forged.certificate.get(), stranger.get(), nullptr), 0);
  EXPECT_THAT(check_issued(forged.certificate.get(), authority.certificate.get(), kNow_s),
              FailsWith(Errc::kNotAllowed));
}

TEST(Certificate, AWorkersKeyIssuesNothing) {
  const Keyed authority = make_authority();
  const Keyed worker = issue(authority, KeyUse::kWorker, "w1");
  const Keyed forged = issue(worker, KeyUse::kOrigin, "origin");
  EXPECT_FALSE(check_issued(forged.certificate.get(), authority.certificate.get(), kNow_s).has_value());
}

TEST(Certificate, HostileFormsAreRefusedAlthoughSigned) {
  const Keyed authority = make_authority();
  struct Case {
    const char* what;
    std::function<void(X509*)> change;
  };
  const std::vector<Case> cases{
      {"no name", [](X509* c) { remove_extension(c, NID_subject_alt_name); }},
      {"two names", [](X509* c) { set_name(c, GEN_URI, "weightcast:worker/w1", 2); }},
      {"a DNS name", [](X509* c) { set_name(c, GEN_DNS, "weightcast:worker/w1"); }},
      {"another scheme", [](X509* c) { set_name(c, GEN_URI, "https://w1"); }},
      {"an unknown role", [](X509* c) { set_name(c, GEN_URI, "weightcast:emperor/w1"); }},
      {"the authority's role", [](X509* c) { set_name(c, GEN_URI, "weightcast:authority/w1"); }},
      {"no role", [](X509* c) { set_name(c, GEN_URI, "weightcast:worker"); }},
      {"an empty name", [](X509* c) { set_name(c, GEN_URI, "weightcast:worker/"); }},
      {"a name with NUL", [](X509* c) { set_name(c, GEN_URI, std::string("weightcast:origin/a\0b", 21)); }},
      {"a name with a line feed", [](X509* c) { set_name(c, GEN_URI, "weightcast:worker/a\nb"); }},
      {"a name that is too long", [](X509* c) { set_name(c, GEN_URI, "weightcast:worker/" + std::string(256, 'a')); }},
      {"the right to sign",
       [](X509* c) {
         remove_extension(c, NID_basic_constraints);
         X509_EXTENSION* e = X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE");
         ASSERT_EQ(X509_add_ext(c, e, -1), 1);
         X509_EXTENSION_free(e);
       }},
      {"a key of another kind",
       [](X509* c) {
         const UniqueKey key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
         ASSERT_EQ(X509_set_pubkey(c, key.get()), 1);
       }},
  };
  for (const Case& hostile : cases) {
    const UniqueX509 certificate = issue_altered(authority, hostile.change);
    const auto info = read_certificate(certificate.get());
    ASSERT_THAT(info, FailsWith(Errc::kCorrupt)) << hostile.what;
    EXPECT_EQ(info.error().detail.find('\n'), std::string::npos) << hostile.what;
    EXPECT_FALSE(check_issued(certificate.get(), authority.certificate.get(), kNow_s).has_value()) << hostile.what;
  }
  EXPECT_TRUE(read_certificate(issue_altered(authority, [](X509*) {}).get()).has_value()) << "the control";
}

TEST(Certificate, AnAuthorityNamesItsOwnKey) {
  const Keyed authority = make_authority();
  const auto info = read_certificate(authority.certificate.get());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->use, KeyUse::kAuthority);
  EXPECT_EQ(info->name, cluster_of(authority.key.get()));
  // One that names another cluster's key is none.
  Keyed false_one = make_authority();
  X509_set_subject_name(false_one.certificate.get(), X509_get_subject_name(authority.certificate.get()));
  ASSERT_GT(X509_sign(false_one.certificate.get(), false_one.key.get(), nullptr), 0);
  EXPECT_FALSE(read_certificate(false_one.certificate.get()).has_value());
}

TEST(Revocations, NameWhatNoLongerCounts) {
  const Keyed authority = make_authority();
  const Keyed out = issue(authority, KeyUse::kWorker, "out"), in = issue(authority, KeyUse::kWorker, "in");
  const std::string serial = read_certificate(out.certificate.get())->serial, replaced = "7f01";
  const Revocations made = Revocations::make({{serial}, {replaced, kNow_s + kDay_s}}, 7, kNow_s,
                                             authority.certificate.get(), authority.key.get());
  const auto parsed = Revocations::parse(made.to_pem(), authority.certificate.get());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  EXPECT_EQ(parsed->number(), 7u);
  for (const std::int64_t at : {kNow_s - 9 * kDay_s, kNow_s, kNow_s + kDay_s})
    EXPECT_TRUE(parsed->contains(serial, at));
  EXPECT_FALSE(parsed->contains(replaced, kNow_s + kDay_s - 1));
  EXPECT_TRUE(parsed->contains(replaced, kNow_s + kDay_s));
  EXPECT_FALSE(parsed->contains(read_certificate(in.certificate.get())->serial, kNow_s));
  EXPECT_FALSE(Revocations().contains(serial, kNow_s));
  EXPECT_EQ(Revocations().number(), 0u);
}

TEST(Revocations, OfAnotherAuthorityAreRefused) {
  const Keyed authority = make_authority(), other = make_authority();
  const Revocations foreign = Revocations::make({}, 1, kNow_s, other.certificate.get(), other.key.get());
  // Under this authority's name, too, by a stranger's key.
  const Revocations forged = Revocations::make({}, 1, kNow_s, authority.certificate.get(), other.key.get());
  for (const Revocations* list : {&foreign, &forged}) {
    EXPECT_THAT(Revocations::parse(list->to_pem(), authority.certificate.get()), FailsWith(Errc::kNotAllowed));
  }
}

TEST(Revocations, TruncatedAtAnyLineAreRefused) {
  const Keyed authority = make_authority();
  const std::string text =
      Revocations::make({{"1f"}}, 1, kNow_s, authority.certificate.get(), authority.key.get()).to_pem();
  for (std::size_t cut = 0; cut + 1 < text.size(); cut += 7) {
    EXPECT_THAT(Revocations::parse(text.substr(0, cut), authority.certificate.get()), FailsWith(Errc::kCorrupt)) << cut;
  }
}

}  // namespace
}  // namespace weightcast
