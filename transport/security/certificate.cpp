#include "transport/security/certificate.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <span>
#include <utility>

#include "base/digest/content_digest.h"
#include "base/text.h"
#include "proto/names.h"

namespace weightcast {
namespace {

constexpr std::string_view kNamePrefix = "weightcast:";
constexpr std::string_view kAddressPrefix = "address/";
constexpr std::string_view kAuthorityPrefix = "weightcast authority ";
constexpr std::string_view kEnrolmentPrefix = "weightcast enrolment ";
// Between a node and its authority: an enrolment certificate, and the authority's successor.
constexpr int kBetweenMax = 2;
constexpr int kSerialBits = 127;            // positive in 16 bytes
constexpr std::size_t kCommonNameMax = 64;  // X.520; who reads a common name is a person
constexpr long kVersion3 = 2;

void add_extension(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context{};
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  WC_CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

// Not from text, as the other extensions: there a name's own characters would have a meaning.
void add_names(X509* certificate, const CertificateRequest& request) {
  std::vector<std::string> texts{fmt::format("{}{}/{}", kNamePrefix, to_string(request.use), request.name)};
  for (const std::string& host : request.addresses) {
    texts.push_back(fmt::format("{}{}{}", kNamePrefix, kAddressPrefix, host));
  }
  UniqueGeneralNames names(GENERAL_NAMES_new());
  for (const std::string& name : texts) {
    GENERAL_NAME* uri = GENERAL_NAME_new();
    ASN1_IA5STRING* text = ASN1_IA5STRING_new();
    WC_CHECK(names && uri != nullptr && text != nullptr &&
             ASN1_STRING_set(text, name.data(), static_cast<int>(name.size())) == 1);
    GENERAL_NAME_set0_value(uri, GEN_URI, text);
    WC_CHECK(sk_GENERAL_NAME_push(names.get(), uri) > 0);
  }
  WC_CHECK(X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) == 1);
}

void set_common_name(X509_NAME* name, const std::string& text) {
  const std::string cut = text.substr(0, kCommonNameMax);
  WC_CHECK(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(cut.data()),
                                      static_cast<int>(cut.size()), -1, 0) == 1);
}

void set_random_serial(X509* certificate) {
  const UniqueBignum number(BN_new());
  WC_CHECK(number && BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1);
  WC_CHECK(BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr);
}

Error corrupt(std::string why) { return fail(Errc::kCorrupt, Op::kVerify, "the certificate " + std::move(why)); }

Result<std::int64_t> seconds_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return corrupt("has a time that is none");
  return std::int64_t{::timegm(&parts)};
}

/// The common name as it may be printed: it can come from a stranger.
std::string common_name(const X509_NAME* name) {
  const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  if (at < 0) return {};
  const ASN1_STRING* text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at));
  const std::string_view bytes(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                               static_cast<std::size_t>(ASN1_STRING_length(text)));
  return printable(cut_text(bytes, kCommonNameMax));
}

std::string cluster_in(const X509_NAME* name) {
  const std::string text = common_name(name);
  for (const std::string_view prefix : {kAuthorityPrefix, kEnrolmentPrefix}) {
    if (text.starts_with(prefix)) return text.substr(prefix.size());
  }
  return "unknown";
}

/// A name of ours, without what all of them begin with.
Result<std::string_view> read_uri(const GENERAL_NAME* name) {
  if (name->type != GEN_URI) return corrupt("does not name a node of weightcast");
  const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
  const std::string_view text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                              static_cast<std::size_t>(ASN1_STRING_length(uri)));
  if (!text.starts_with(kNamePrefix)) return corrupt("does not name a node of weightcast");
  return text.substr(kNamePrefix.size());
}

/// Of a node: its name, then its addresses.
Status read_names(X509* certificate, CertificateInfo& info) {
  const UniqueGeneralNames names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  const int count = names ? sk_GENERAL_NAME_num(names.get()) : 0;
  if (count < 1 || count > int(kCertificateAddressesMax) + 1) return corrupt("does not name one node");
  WC_ASSIGN(const std::string_view node, read_uri(sk_GENERAL_NAME_value(names.get(), 0)));
  const std::size_t slash = node.find('/');
  const auto use = find_word<KeyUse>(node.substr(0, slash));
  if (slash == std::string_view::npos || !use || *use == KeyUse::kAuthority)
    return corrupt("has a role that is not known here");
  info.use = *use;
  info.name = node.substr(slash + 1);
  if (const Status fits = check_node_name(info.name); !fits.has_value())
    return corrupt("is bad: " + fits.error().detail);
  for (int i = 1; i < count; ++i) {
    WC_ASSIGN(std::string_view address, read_uri(sk_GENERAL_NAME_value(names.get(), i)));
    if (!address.starts_with(kAddressPrefix)) return corrupt("does not name one node");
    address.remove_prefix(kAddressPrefix.size());
    if (address.empty() || !check_host(address).has_value()) return corrupt("has an address that is none");
    info.addresses.emplace_back(address);
  }
  return {};
}

}  // namespace

UniqueKey make_key() {
  set_up_openssl();
  UniqueKey key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  WC_CHECK(key);
  return key;
}

KeyId key_id(EVP_PKEY* key) {
  const std::string der = der_of<i2d_PUBKEY>(key);
  return {content_digest_of(std::as_bytes(std::span(der))).bytes};
}

std::string cluster_of(EVP_PKEY* authority_key) {
  const KeyId id = key_id(authority_key);
  return hex_of(std::span(id.bytes).first(8));
}

UniqueX509 make_certificate(const CertificateRequest& request, X509* authority, EVP_PKEY* signer) {
  UniqueX509 made(X509_new());
  WC_CHECK(made && X509_set_version(made.get(), kVersion3) == 1);
  X509* certificate = made.get();
  X509* issuer = authority != nullptr ? authority : certificate;
  const bool is_authority = request.use == KeyUse::kAuthority;
  set_random_serial(certificate);
  WC_CHECK(X509_set_pubkey(certificate, request.key) == 1);
  WC_CHECK(ASN1_TIME_set(X509_getm_notBefore(certificate), request.not_before_unix_s) != nullptr);
  WC_CHECK(ASN1_TIME_set(X509_getm_notAfter(certificate), request.not_after_unix_s) != nullptr);
  const bool is_enrolment = request.use == KeyUse::kEnrolment;
  set_common_name(X509_get_subject_name(certificate),
                  is_authority   ? std::string(kAuthorityPrefix) + cluster_of(request.key)
                  : is_enrolment ? std::string(kEnrolmentPrefix) + cluster_of(X509_get0_pubkey(issuer))
                                 : request.name);
  WC_CHECK(X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1);
  add_extension(certificate, issuer, NID_subject_key_identifier, "hash");
  add_extension(certificate, issuer, NID_authority_key_identifier, "keyid");
  if (is_authority) {
    add_extension(certificate, issuer, NID_basic_constraints,
                  fmt::format("critical,CA:TRUE,pathlen:{}", kBetweenMax).c_str());
    add_extension(certificate, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else if (is_enrolment) {
    add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
    add_extension(certificate, issuer, NID_key_usage, "critical,keyCertSign");
    add_names(certificate, request);
  } else {
    add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE");
    add_extension(certificate, issuer, NID_key_usage, "critical,digitalSignature");
    // Without a use that TLS knows, no connection is made with the key that signs manifests.
    add_extension(certificate, issuer, NID_ext_key_usage,
                  request.use == KeyUse::kSigning ? "critical,codeSigning" : "critical,clientAuth,serverAuth");
    add_names(certificate, request);
  }
  WC_CHECK(X509_sign(certificate, signer, nullptr) > 0);
  return made;
}

Result<CertificateInfo> read_certificate(X509* certificate) {
  CertificateInfo info;
  EVP_PKEY* key = X509_get0_pubkey(certificate);
  if (key == nullptr || EVP_PKEY_get_id(key) != EVP_PKEY_ED25519) return corrupt("has no Ed25519 key");
  info.key = key_id(key);
  info.cluster = cluster_in(X509_get_issuer_name(certificate));
  const UniqueBignum serial(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr));
  if (!serial) return corrupt("has no serial");
  char* digits = BN_bn2hex(serial.get());
  WC_CHECK(digits != nullptr);
  info.serial = digits;
  OPENSSL_free(digits);
  std::ranges::transform(info.serial, info.serial.begin(), [](char c) { return c >= 'A' ? char(c - 'A' + 'a') : c; });
  WC_ASSIGN(info.not_before_unix_s, seconds_of(X509_get0_notBefore(certificate)));
  WC_ASSIGN(info.not_after_unix_s, seconds_of(X509_get0_notAfter(certificate)));
  const bool is_ca = (X509_get_extension_flags(certificate) & EXFLAG_CA) != 0 || X509_check_ca(certificate) != 0;
  if (is_ca && X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1) < 0) {
    const std::string cluster = cluster_of(key);
    if (cluster_in(X509_get_subject_name(certificate)) != cluster)
      return corrupt("may sign others, and is no authority");
    info.use = KeyUse::kAuthority;
    info.name = cluster;
    return info;
  }
  WC_TRY(read_names(certificate, info));
  if (is_ca != (info.use == KeyUse::kEnrolment)) {
    return corrupt(is_ca ? "may sign others, and is no authority" : "is for enrolment, and may not sign others");
  }
  return info;
}

namespace {

Status check_time(const CertificateInfo& info, std::int64_t now_unix_s, bool is_between) {
  const char* const whose = is_between ? "issued by a certificate that has " : "";
  if (now_unix_s > info.not_after_unix_s) {
    return fail(Errc::kTimedOut, Op::kVerify, fmt::format("{}expired on {}", whose, date_of(info.not_after_unix_s)));
  }
  if (now_unix_s < info.not_before_unix_s) {
    return fail(Errc::kTimedOut, Op::kVerify,
                fmt::format("{}not valid before {}; are the clocks right?", whose, date_of(info.not_before_unix_s)));
  }
  return {};
}

/// What a certificate between a node's and the authority's may vouch for. `below` is what it has issued.
Status check_between(const CertificateInfo& info, const CertificateInfo& below) {
  if (info.use == KeyUse::kAuthority) return {};
  if (info.use == KeyUse::kEnrolment && below.use == KeyUse::kWorker) return {};
  return fail(Errc::kNotAllowed, Op::kVerify,
              fmt::format("a certificate for {} cannot issue one for {}", to_string(info.use), to_string(below.use)));
}

}  // namespace

Result<Vouched> check_chain(X509* certificate, const Between& between, X509* authority, std::int64_t now_unix_s) {
  Vouched vouched;
  WC_ASSIGN(vouched.info, read_certificate(certificate));
  const UniqueStore store(X509_STORE_new());
  const UniqueStoreContext context(X509_STORE_CTX_new());
  STACK_OF(X509)* untrusted = sk_X509_new_null();
  WC_CHECK(store && context && untrusted != nullptr && X509_STORE_add_cert(store.get(), authority) == 1);
  for (X509* one : between) WC_CHECK(sk_X509_push(untrusted, one) > 0);
  WC_CHECK(X509_STORE_CTX_init(context.get(), store.get(), certificate, untrusted) == 1);
  X509_VERIFY_PARAM* parameters = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_depth(parameters, kBetweenMax);
  // By our own rules below: to the last second, and in words.
  X509_VERIFY_PARAM_set_flags(parameters, X509_V_FLAG_NO_CHECK_TIME);
  const bool issued = X509_verify_cert(context.get()) == 1;
  sk_X509_free(untrusted);
  if (!issued) {
    static_cast<void>(take_openssl_error());
    return fail(Errc::kNotAllowed, Op::kVerify,
                fmt::format("another cluster's: issued by {}, and this is cluster {}", vouched.info.cluster,
                            cluster_of(X509_get0_pubkey(authority))));
  }
  CertificateInfo below = vouched.info;
  STACK_OF(X509)* chain = X509_STORE_CTX_get0_chain(context.get());
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    WC_ASSIGN(CertificateInfo info, read_certificate(sk_X509_value(chain, i)));
    if (i > 0) WC_TRY(check_between(info, below));
    WC_TRY(check_time(info, now_unix_s, i > 0));
    vouched.serials.push_back(info.serial);
    below = std::move(info);
  }
  return vouched;
}

Status check_issued(X509* certificate, X509* authority, std::int64_t now_unix_s) {
  const Result<Vouched> vouched = check_chain(certificate, {}, authority, now_unix_s);
  return vouched.has_value() ? Status() : Status(vouched.error());
}

std::string date_of(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return "a time beyond all calendars";
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", parts);
}

std::int64_t unix_now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace weightcast
