#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "transport/io/net/socket_network.h"
#include "transport/io/uv_loop.h"

namespace weightcast::bench {

/// Workers without processes, on the caller's thread. Each has keys and a port of its own, joins the origin, and sends
/// heartbeats. None takes a payload.
class Crowd {
 public:
  /// Issues keys for so many workers from the authority in `keys`. Errors: those of the authority and of the ports.
  [[nodiscard]] static Result<std::unique_ptr<Crowd>> make(const std::filesystem::path& keys, std::size_t workers);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  struct Joined {
    double seconds = 0;  ///< from the first dial until the origin has let the last one in
    double cpu_s = 0;    ///< of this process
  };
  /// All of them dial at once. Errors: what the origin said to one that it turned away; kTimedOut.
  [[nodiscard]] Result<Joined> join(const Endpoint& origin);
  /// Stays for so long.
  [[nodiscard]] Status idle(Duration duration);
  /// All of them close their connections; each keeps the ticket of its last one.
  void leave();

 private:
  class Worker;
  explicit Crowd(std::size_t workers);

  UvLoop loop_;
  std::vector<std::unique_ptr<Worker>> workers_;
  const std::size_t expected_;
  std::size_t joined_ = 0;
  std::string failure_;
};

}  // namespace weightcast::bench
