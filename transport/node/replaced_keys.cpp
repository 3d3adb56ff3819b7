#include "transport/node/replaced_keys.h"

#include <fmt/format.h>

#include <utility>

namespace weightcast {
namespace {

// Enough of a serial to tell two apart, and to find them in `weightcast keys list --json`.
constexpr std::size_t kSerialDigits = 8;

std::string told(const CertificateInfo& info) {
  return fmt::format("{} until {}", info.serial.substr(0, kSerialDigits), date_of(info.not_after_unix_s));
}

/// Of an origin; "" of a worker.
std::string signing_key_of(const NodeKeys& keys) {
  if (!keys.signing_certificate) return "";
  const Result<CertificateInfo> info = read_certificate(keys.signing_certificate.get());
  return info.has_value() ? told(*info) : "";
}

std::string authority_of(const NodeKeys& keys) {
  const Result<CertificateInfo> info = read_certificate(keys.authority.get());
  return info.has_value() ? info->name : "";
}

}  // namespace

Result<std::optional<NodeKeys>> read_replaced_keys(const DaemonConfig& config, const NodeKeys& present) {
  WC_ASSIGN(NodeKeys keys, read_node_keys(config.keys, unix_now_s()));
  DaemonConfig fitted = config;
  WC_TRY(fit_to_keys(fitted, keys));
  if (are_same(keys, present)) return std::optional<NodeKeys>();
  return std::optional(std::move(keys));
}

std::vector<std::string> changes_between(const NodeKeys& before, const NodeKeys& after) {
  std::vector<std::string> changes;
  const auto compare = [&](const char* what, const std::string& was, const std::string& is) {
    if (was != is) changes.push_back(fmt::format("{}: {} -> {}", what, was, is));
  };
  compare("certificate", told(before.info), told(after.info));
  compare("signing key", signing_key_of(before), signing_key_of(after));
  compare("authority of cluster", authority_of(before), authority_of(after));
  if (changes.empty()) changes.emplace_back("keys: the same certificates, with others between them and the authority");
  return changes;
}

}  // namespace weightcast
