#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace weightcast {

/// Threads that share out loops, again and again. One thread calls run(), and takes part.
/// Invariant: between two calls of run() the others wait for the next round, and touch nothing.
class ThreadTeam {
 public:
  /// With fewer than `threads` where the machine allows no more.
  explicit ThreadTeam(unsigned threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  [[nodiscard]] unsigned threads() const { return static_cast<unsigned>(others_.size()) + 1; }
  /// Calls `body(i)` once for each i below `count`, from several threads at a time. Returns when all calls have ended.
  void run(std::size_t count, const std::function<void(std::size_t)>& body);

 private:
  void serve();
  void take_shares();

  const std::function<void(std::size_t)>* body_ = nullptr;
  std::size_t count_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint32_t> round_{0};
  std::atomic<std::uint32_t> busy_{0};  ///< others that have not ended this round
  bool stopping_ = false;               ///< read after a new round only
  std::vector<std::jthread> others_;
};

}  // namespace weightcast
