#include "transport/security/manifest_signature.h"

#include <fmt/format.h>

#include <memory>

namespace weightcast {
namespace {

constexpr std::size_t kEd25519Bytes = 64;

using UniqueContext = std::unique_ptr<EVP_MD_CTX, OpensslFree<EVP_MD_CTX_free>>;

const unsigned char* as_unsigned(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

std::string sign_statement(EVP_PKEY* key, std::string_view statement) {
  const UniqueContext context(EVP_MD_CTX_new());
  WC_CHECK(context && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key) == 1);
  std::string signature(kEd25519Bytes, 0);
  std::size_t size = signature.size();
  WC_CHECK(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                          as_unsigned(statement), statement.size()) == 1);
  WC_CHECK(size == kEd25519Bytes);
  return signature;
}

std::string to_der(X509* certificate, const Between& between) {
  std::string der = der_of<i2d_X509>(certificate);
  for (X509* one : between) der += der_of<i2d_X509>(one);
  return der;
}

Result<std::vector<UniqueX509>> from_der(std::string_view der) {
  set_up_openssl();
  std::vector<UniqueX509> certificates;
  const unsigned char* at = as_unsigned(der);
  const unsigned char* const end = at + der.size();
  do {
    UniqueX509 certificate(d2i_X509(nullptr, &at, end - at));
    if (!certificate || certificates.size() == kSentCertificatesMax) {
      static_cast<void>(take_openssl_error());
      return fail(Errc::kNotAllowed, Op::kVerify, "what should be the certificate of its signing key is none");
    }
    certificates.push_back(std::move(certificate));
  } while (at != end);
  return certificates;
}

Result<Vouched> check_statement(std::string_view statement, std::string_view signature, X509* certificate,
                                const Between& between, X509* authority, std::int64_t unix_s) {
  Result<Vouched> vouched = check_chain(certificate, between, authority, unix_s);
  if (!vouched.has_value()) {
    return fail(vouched.error().code == Errc::kTimedOut ? Errc::kTimedOut : Errc::kNotAllowed, Op::kVerify,
                "the certificate of its signing key: " + vouched.error().detail);
  }
  const CertificateInfo& info = vouched->info;
  if (info.use != KeyUse::kSigning) {
    return fail(Errc::kNotAllowed, Op::kVerify,
                fmt::format("it is signed by the key of {} {}, which is not for signing manifests", to_string(info.use),
                            info.name));
  }
  const UniqueContext context(EVP_MD_CTX_new());
  WC_CHECK(context);
  const bool matches =
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, X509_get0_pubkey(certificate)) == 1 &&
      EVP_DigestVerify(context.get(), as_unsigned(signature), signature.size(), as_unsigned(statement),
                       statement.size()) == 1;
  if (matches) return vouched;
  static_cast<void>(take_openssl_error());
  return fail(Errc::kNotAllowed, Op::kVerify, "its signature is not the origin's over what it says");
}

}  // namespace weightcast
