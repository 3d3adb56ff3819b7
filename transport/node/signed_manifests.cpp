#include "transport/node/signed_manifests.h"

#include <fmt/format.h>

#include "security/manifest_signature.h"

namespace weightcast {
namespace {

std::int64_t published_unix_s(const Manifest& manifest) { return manifest.published_unix_ms / 1000; }

}  // namespace

SigningKey::SigningKey(const NodeKeys& keys)
    : key_([&] {
        // A reference of our own: other threads sign while the loop may take up other keys.
        WC_CHECK(keys.signing_key && EVP_PKEY_up_ref(keys.signing_key.get()) == 1);
        return UniqueKey(keys.signing_key.get());
      }()),
      certificate_(to_der(keys.signing_certificate.get())) {}

ManifestSignature SigningKey::sign(std::string_view statement) const {
  return {sign_statement(key_.get(), statement), certificate_};
}

Result<CertificateInfo> check_manifest(const Manifest& manifest, X509* authority, const Revocations& revocations,
                                       std::int64_t now_unix_s) {
  const auto refuse = [&](std::string_view why) {
    return about(to_string(manifest.id()), fail(Errc::kNotAllowed, Op::kVerify, std::string(why)));
  };
  if (manifest.signature.bytes.empty()) return refuse("it is not signed; does the origin have keys?");
  if (manifest.signature.certificate.size() > kCertificateBytesMax) return refuse("its certificate is too long");
  Result<UniqueX509> certificate = from_der(manifest.signature.certificate);
  if (!certificate.has_value()) return about(to_string(manifest.id()), certificate.error());
  Result<CertificateInfo> info =
      check_statement(signed_statement(manifest), manifest.signature.bytes, certificate->get(), authority, now_unix_s);
  if (!info.has_value()) return about(to_string(manifest.id()), info.error());
  if (revocations.contains(info->serial)) return refuse("the key that signed it is revoked");
  return info;
}

Status ClusterTrust::check(const Manifest& manifest) const {
  const std::int64_t now = unix_now_s();
  WC_TRY(check_manifest(manifest, tls_->keys().authority.get(), tls_->revocations(), now));
  const std::int64_t age_s = now - published_unix_s(manifest);
  if (options_.age_max == Duration::zero() || double(age_s) <= to_seconds(options_.age_max)) return {};
  return fail(Errc::kTimedOut, Op::kVerify,
              fmt::format("{}: it was published on {}, longer ago than --version-age-max allows",
                          to_string(manifest.id()), date_of(published_unix_s(manifest))));
}

Status ClusterTrust::check_stored(const Manifest& manifest) const {
  WC_TRY(check_manifest(manifest, tls_->keys().authority.get(), tls_->revocations(), published_unix_s(manifest)));
  return {};
}

}  // namespace weightcast
