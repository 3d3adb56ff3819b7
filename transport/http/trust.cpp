#include "transport/http/trust.h"

#include <fmt/format.h>

#include <algorithm>

namespace weightcast {
namespace {

std::vector<std::filesystem::path> directories_of(const HttpTrust& trust) {
  std::vector<std::filesystem::path> directories{std::filesystem::path(trust.keys).parent_path()};
  directories.insert(directories.end(), trust.revocation_directories.begin(), trust.revocation_directories.end());
  return directories;
}

}  // namespace

Status check_trust(const HttpTrust& trust, const Endpoint& endpoint) {
  if (!trust.keys.empty() && trust.insecure) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "insecure: with keys connections are encrypted; give one of the two");
  }
  if (!trust.keys.empty() || trust.insecure || endpoint.is_loopback()) return {};
  return fail(Errc::kNotAllowed, Op::kConfigure,
              fmt::format("{}: this address is beyond loopback, and without keys everybody on the way can read and "
                          "change what goes there; give the file of this node's keys (weightcast keys), or say "
                          "insecure where the network is trusted",
                          endpoint.to_string()));
}

Result<std::shared_ptr<TlsContext>> make_tls(FileSystem& files, const HttpTrust& trust) {
  if (trust.keys.empty()) return std::shared_ptr<TlsContext>();
  WC_ASSIGN(NodeKeys keys, read_node_keys(trust.keys, unix_now_s()));
  std::shared_ptr<TlsContext> tls = TlsContext::make(std::move(keys));
  WC_TRY(refresh_revocations(files, trust, *tls));
  return tls;
}

Status refresh_revocations(FileSystem& files, const HttpTrust& trust, TlsContext& tls) {
  WC_ASSIGN(Revocations newest, newest_revocations(files, directories_of(trust), tls.keys().authority.get()));
  if (newest.number() > tls.revocations().number()) tls.set_revocations(std::move(newest));
  return {};
}

Status refresh_keys(const HttpTrust& trust, TlsContext& tls) {
  WC_ASSIGN(NodeKeys keys, read_node_keys(trust.keys, unix_now_s()));
  if (!are_same(keys, tls.keys())) tls.set_keys(std::move(keys));
  return {};
}

Status check_still_counts(const PeerIdentity& peer, const TlsContext& tls) {
  const std::int64_t now_s = unix_now_s();
  if (peer.expires_unix_s < now_s) {
    return fail(Errc::kTimedOut, Op::kVerify, fmt::format("the certificate of {} has expired", peer.name));
  }
  const bool revoked =
      std::ranges::any_of(peer.serials, [&](const std::string& s) { return tls.revocations().contains(s, now_s); });
  if (!revoked) return {};
  return fail(Errc::kNotAllowed, Op::kVerify, fmt::format("{} is revoked", peer.name));
}

}  // namespace weightcast
