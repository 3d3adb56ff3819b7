#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "transport/io/net/endpoint.h"
#include "transport/io/net/socket.h"
#include "transport/io/uv_loop.h"

namespace weightcast {

/// Finds the addresses of a host by its name, on the loop: no pool thread waits for a name server, so that names that
/// do not resolve hold up nobody but whoever dials them. Asks /etc/hosts, then the servers of /etc/resolv.conf, read
/// afresh for each lookup. Dropping it cancels. Loop thread only.
class NameLookup {
 public:
  /// How long one server is waited for; each is asked twice, the second time for twice as long.
  static constexpr Duration kTryTimeout = std::chrono::seconds(1);

  /// The addresses with the endpoint's port, at least one; or kTimedOut (no server answers), kIo.
  using Done = std::function<void(Result<std::vector<SocketAddress>>)>;

  /// `done` runs once, later; it may drop the lookup. `servers`: numeric, instead of those of /etc/resolv.conf.
  NameLookup(UvLoop& loop, const std::vector<Endpoint>& servers, const Endpoint& endpoint, Done done);
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weightcast
