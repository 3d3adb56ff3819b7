#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings/endpoint.h"
#include "transport/io/net/socket.h"
#include "transport/io/uv_loop.h"

namespace weightcast {

/// Finds the addresses of a host by its name, on the loop. No pool thread waits for a name server, so a name that does
/// not resolve delays only its own dial. Asks /etc/hosts, then the servers in /etc/resolv.conf, and reads both files
/// for each lookup. Destroying this object cancels. Loop thread only.
class NameLookup {
 public:
  /// How long to wait for one server. Each server is asked twice, with twice the time at the second attempt.
  static constexpr Duration kTryTimeout = std::chrono::seconds(1);

  /// The addresses with the endpoint's port, at least one; or kTimedOut (no server answers), kIo.
  using Done = std::function<void(Result<std::vector<SocketAddress>>)>;

  /// `done` runs once, later, and may destroy the lookup. `servers` are numeric, and replace those of /etc/resolv.conf
  /// if there are any.
  NameLookup(UvLoop& loop, const std::vector<Endpoint>& servers, const Endpoint& endpoint, Done done);
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightcast
