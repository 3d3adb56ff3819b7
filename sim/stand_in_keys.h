#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/digest/checksum.h"
#include "transport/core/manifest/manifest_trust.h"
#include "transport/core/manifest/payload_wire.h"

/// Stand-ins for an origin's signing key and a worker's judgement, without keys: for cores whose messages nobody forges
/// but the test.
namespace weightcast::sim {

/// Signs with a checksum. Another `secret` is another cluster's key.
class StandInSigner final : public ManifestSigner {
 public:
  explicit StandInSigner(std::string secret = "origin") : secret_(std::move(secret)) {}

  /// From now on what it signs does not hold.
  void lie(bool lies) { lies_ = lies; }

  [[nodiscard]] ManifestSignature sign(std::string_view statement) const override {
    std::string text(statement);
    text += lies_ ? "another statement" : secret_;
    return {std::string(bytes_of(checksum_of(std::as_bytes(std::span(text))))), "stand-in"};
  }

 private:
  const std::string secret_;
  bool lies_ = false;
};

class StandInTrust final : public ManifestTrust {
 public:
  [[nodiscard]] Status check(const Manifest& manifest) const override {
    if (manifest.signature == honest_.sign(signed_statement(manifest))) return {};
    return fail(Errc::kNotAllowed, Op::kVerify, to_string(manifest.id()) + ": its signature is not the origin's");
  }
  [[nodiscard]] Status check_stored(const Manifest& manifest) const override { return check(manifest); }

 private:
  const StandInSigner honest_;
};

}  // namespace weightcast::sim
