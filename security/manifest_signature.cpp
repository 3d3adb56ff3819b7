#include "security/manifest_signature.h"

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

std::string to_der(X509* certificate) { return der_of<i2d_X509>(certificate); }

Result<UniqueX509> from_der(std::string_view der) {
  set_up_openssl();
  const unsigned char* at = as_unsigned(der);
  UniqueX509 certificate(d2i_X509(nullptr, &at, static_cast<long>(der.size())));
  if (certificate && at == as_unsigned(der) + der.size()) return certificate;
  static_cast<void>(take_openssl_error());
  return fail(Errc::kNotAllowed, Op::kVerify, "what should be the certificate of its signing key is none");
}

Result<CertificateInfo> check_statement(std::string_view statement, std::string_view signature, X509* certificate,
                                        X509* authority, std::int64_t now_unix_s) {
  const Status issued = check_issued(certificate, authority, now_unix_s);
  if (!issued.has_value()) {
    return fail(issued.error().code == Errc::kTimedOut ? Errc::kTimedOut : Errc::kNotAllowed, Op::kVerify,
                "the certificate of its signing key: " + issued.error().detail);
  }
  WC_ASSIGN(CertificateInfo info, read_certificate(certificate));
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
  if (matches) return info;
  static_cast<void>(take_openssl_error());
  return fail(Errc::kNotAllowed, Op::kVerify, "its signature is not the origin's over what it says");
}

}  // namespace weightcast
