#include "transport/node/payload/signed_manifests.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "transport/security/manifest_signature.h"

namespace weightcast {
namespace {

std::int64_t published_unix_s(const Manifest& manifest) { return manifest.published_unix_ms / 1000; }

}  // namespace

void SigningKey::set_keys(const NodeKeys& keys) {
  // A reference of our own: other threads sign while the loop may take up other keys.
  WC_CHECK(keys.signing_key && EVP_PKEY_up_ref(keys.signing_key.get()) == 1);
  auto held = std::make_shared<const Held>(
      Held{UniqueKey(keys.signing_key.get()), to_der(keys.signing_certificate.get(), keys.issuers())});
  const std::scoped_lock lock(mutex_);
  held_ = std::move(held);
}

ManifestSignature SigningKey::sign(std::string_view statement) const {
  const std::shared_ptr<const Held> held = [this] {
    const std::scoped_lock lock(mutex_);
    return held_;
  }();
  return {sign_statement(held->key.get(), statement), held->certificates};
}

Result<CertificateInfo> check_manifest(const Manifest& manifest, const NodeKeys& keys, const Revocations& revocations,
                                       std::int64_t unix_s) {
  const auto refuse = [&](std::string_view why) {
    return about(to_string(manifest.id()), fail(Errc::kNotAllowed, Op::kVerify, std::string(why)));
  };
  if (manifest.signature.bytes.empty()) return refuse("it is not signed; does the origin have keys?");
  if (manifest.signature.certificate.size() > kCertificateBytesMax) return refuse("its certificate is too long");
  const auto certificates = from_der(manifest.signature.certificate);
  if (!certificates.has_value()) return about(to_string(manifest.id()), certificates.error());
  Between between = keys.issuers();
  for (const UniqueX509& sent : std::span(*certificates).subspan(1)) between.push_back(sent.get());
  Result<Vouched> vouched = check_statement(signed_statement(manifest), manifest.signature.bytes,
                                            certificates->front().get(), between, keys.authority.get(), unix_s);
  if (!vouched.has_value()) return about(to_string(manifest.id()), vouched.error());
  for (const std::string& serial : vouched->serials) {
    if (revocations.contains(serial, unix_s)) return refuse("the key that signed it is revoked, or has been replaced");
  }
  return std::move(vouched->info);
}

Result<CertificateInfo> check_accepted_manifest(const Manifest& manifest, const NodeKeys& keys,
                                                const Revocations& revocations, std::int64_t now_unix_s) {
  Result<CertificateInfo> then = check_manifest(manifest, keys, revocations, published_unix_s(manifest));
  if (then.has_value()) return then;
  Result<CertificateInfo> now = check_manifest(manifest, keys, revocations, now_unix_s);
  return now.has_value() ? now : then;
}

Status check_may_sign(const NodeKeys& keys, std::int64_t unix_s) {
  const auto counts = check_chain(keys.signing_certificate.get(), keys.issuers(), keys.authority.get(), unix_s);
  if (counts.has_value()) return {};
  return fail(
      counts.error().code, Op::kVerify,
      fmt::format("nothing is signed: the certificate of this origin's signing key: {}; this host's clock says "
                  "{}: set it if it is wrong, else 'weightcast keys issue {} --renew' makes another certificate",
                  counts.error().detail, date_of(unix_s), keys.info.name));
}

Status ClusterTrust::check(const Manifest& manifest) const {
  const std::int64_t now = unix_now_s();
  WC_TRY(check_manifest(manifest, tls_->keys(), tls_->revocations(), now));
  const std::int64_t age_s = now - published_unix_s(manifest);
  if (options_.age_max == Duration::zero() || double(age_s) <= to_seconds(options_.age_max)) return {};
  return fail(Errc::kTimedOut, Op::kVerify,
              fmt::format("{}: it was published on {}, longer ago than --version-age-max allows",
                          to_string(manifest.id()), date_of(published_unix_s(manifest))));
}

Status ClusterTrust::check_stored(const Manifest& manifest) const {
  WC_TRY(check_accepted_manifest(manifest, tls_->keys(), tls_->revocations(), unix_now_s()));
  return {};
}

}  // namespace weightcast
