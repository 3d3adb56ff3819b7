#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "transport/io/uv_loop.h"

namespace weightcast {

/// Threads that move the bytes of connections, each with a loop of its own. A connection has one of them from its
/// handshake to its close. Owned by a node's loop thread, which makes and destroys it and calls all of it.
class IoThreads {
 public:
  static constexpr unsigned kThreadsMax = 4;

  /// As many threads as the cores of this process are worth: half of them, from 1 to kThreadsMax.
  [[nodiscard]] static unsigned default_count();

  /// Where the machine allows no more threads, there are fewer, or none.
  explicit IoThreads(unsigned count);
  /// All connections have been closed by now. Those that still flush have left these threads before.
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  /// A place at a thread. It counts there while somebody holds it, which any thread may do. The loop lives as long as
  /// the IoThreads.
  struct Seat {
    UvLoop* loop = nullptr;
  };
  /// At the thread where the fewest are; null if there is no thread.
  [[nodiscard]] std::shared_ptr<const Seat> take_seat();

 private:
  struct One {
    One();
    UvLoop loop;
    Timer far_away;  // so that the loop never finds itself without anything to wait for
    std::shared_ptr<const Seat> seat;
    std::vector<std::jthread> thread;
  };

  std::vector<std::unique_ptr<One>> all_;
  std::size_t next_ = 0;  // among those with equally few
};

}  // namespace weightcast
