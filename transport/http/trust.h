#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "base/settings/endpoint.h"
#include "transport/security/tls.h"

namespace weightcast {

/// How the two ends of HTTP connections trust each other: by the cluster's keys, or not at all.
struct HttpTrust {
  std::string keys = {};  ///< file of this end's keys (`weightcast keys`); "": connections are plain
  bool insecure = false;  ///< plain connections beyond loopback, too
  /// Directories with lists of revoked keys, besides that of `keys`: a node's state directory has what the origin sent.
  std::vector<std::string> revocation_directories = {};
};

/// Whether `trust` allows connections at `endpoint`. Errors: kNotAllowed (plain beyond loopback), kInvalidArgument
/// (keys and insecure).
[[nodiscard]] Status check_trust(const HttpTrust& trust, const Endpoint& endpoint);

/// The encryption that `trust` names, with the lists of revoked keys that there are; null for plain connections.
/// Errors: those of read_node_keys(), kCorrupt (a list).
[[nodiscard]] Result<std::shared_ptr<TlsContext>> make_tls(FileSystem& files, const HttpTrust& trust);

/// Reads the lists of revoked keys again, and gives the newest to `tls`. Errors: kCorrupt, those of the files; then the
/// list that counted before stays.
[[nodiscard]] Status refresh_revocations(FileSystem& files, const HttpTrust& trust, TlsContext& tls);

/// Reads the file of keys again, and gives `tls` what it holds: for the connections that are made from now on. Errors:
/// those of read_node_keys(); then the keys stay.
[[nodiscard]] Status refresh_keys(const HttpTrust& trust, TlsContext& tls);

/// Whether the certificate that `peer` showed still counts. Errors: kNotAllowed, kTimedOut.
[[nodiscard]] Status check_still_counts(const PeerIdentity& peer, const TlsContext& tls);

}  // namespace weightcast
