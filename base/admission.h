#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace weightcast {

/// Limits on incoming connections. A connection is unidentified until its peer has introduced itself.
struct AdmissionLimits {
  std::size_t connections_max = 32'768;
  std::size_t connections_per_host_max = 24'576;
  std::size_t unidentified_max = 1024;
  std::size_t unidentified_per_host_max = 512;

  /// The limits for this many connections. One host gets three quarters of them, because many workers may share an
  /// address, and unidentified ones a quarter.
  [[nodiscard]] static AdmissionLimits for_connections(std::uint64_t connections_max);
  /// The limits for a process with this many descriptors. Connections get half of them, because files, the process's
  /// own dialling and the local socket need some too.
  [[nodiscard]] static AdmissionLimits for_descriptors(std::uint64_t descriptors_max);
  /// The same for this process's present RLIMIT_NOFILE.
  [[nodiscard]] static AdmissionLimits of_this_process();
};

/// Counts incoming connections and decides which to refuse. Pure: the listener asks, and closes what is refused. An
/// identified connection never makes way for a new one. When there are too many unidentified ones, the oldest makes way
/// for the newest. So a flood of silent connections does not keep out a peer that introduces itself.
/// Invariant: each connection counts once, for its host, and no host without connections is kept.
class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  /// Counts a connection from `host`. Numbers grow in the order of arrival. Errors: kBusy (the connection is not
  /// counted, and the caller closes it).
  [[nodiscard]] Status admit(ConnId conn, const std::string& host);
  /// After admit(): the unidentified connection that makes way. The caller closes and erases it.
  [[nodiscard]] std::optional<ConnId> crowded_out() const;
  /// The peer has introduced itself. This and erase() ignore a connection that is not counted.
  void identify(ConnId conn);
  /// The connection's descriptor has been closed.
  void erase(ConnId conn);

  [[nodiscard]] std::size_t count() const { return hosts_of_.size(); }
  [[nodiscard]] bool is_unidentified(ConnId conn) const { return unidentified_.contains(conn); }

 private:
  struct Host {
    std::size_t connections = 0;
    std::size_t unidentified = 0;
  };
  using Hosts = std::map<std::string, Host>;

  const AdmissionLimits limits_;
  Hosts hosts_;
  std::map<ConnId, Hosts::iterator> hosts_of_;
  std::map<ConnId, Hosts::iterator> unidentified_;  // the oldest first
  std::optional<Hosts::iterator> newest_host_;      // of the last one that was admitted
};

}  // namespace weightcast
