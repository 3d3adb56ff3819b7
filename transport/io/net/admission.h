#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace weightcast {

/// How many connections others may have to this node. Unidentified ones have not said yet who they are.
struct AdmissionLimits {
  std::size_t connections_max = 32'768;
  std::size_t connections_per_host_max = 24'576;
  std::size_t unidentified_max = 1024;
  std::size_t unidentified_per_host_max = 512;

  /// What a process with so many descriptors can afford: half of them, since the store's files, the node's own dialling
  /// and the local socket need some, too. One host gets three quarters of that (many workers may share an address).
  [[nodiscard]] static AdmissionLimits for_descriptors(std::uint64_t descriptors_max);
  /// The same, by this process's RLIMIT_NOFILE as it is now.
  [[nodiscard]] static AdmissionLimits of_this_process();
};

/// Counts the connections that others made to this node and says which to refuse. Pure: whoever accepts asks, and
/// closes. Established ones are never given up for new ones; of unidentified ones the newest stays and the one that
/// has been silent for longest goes, so that a flood of silent connections keeps out nobody who introduces himself.
/// Invariant: connections are counted once by host, and no host without any is kept.
class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  /// A connection from `host`. Connections are numbered as they come. Errors: kBusy (not counted; to be closed).
  [[nodiscard]] Status admit(ConnId conn, const std::string& host);
  /// After admit(): an unidentified connection that is one too many. To be closed, and erased.
  [[nodiscard]] std::optional<ConnId> crowded_out() const;
  /// It has said who it is. Ignored for a connection that is not counted, here and below.
  void identify(ConnId conn);
  /// Its descriptor is free.
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
