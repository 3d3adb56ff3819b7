#pragma once

#include <cstddef>
#include <functional>
#include <list>

namespace weightcast {

/// Bounds the memory of frames that are still arriving, over many connections. A frame takes its whole length before
/// its body is read; while that is not to be had its connection is not read, which its peer feels through TCP. First
/// come, first served. Loop thread only; outlives its shares.
/// Invariant: taken_bytes() <= bytes_max, and nobody waits while the first in the queue would fit.
class ReceiveBudget {
 public:
  explicit ReceiveBudget(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  ReceiveBudget(const ReceiveBudget&) = delete;
  ReceiveBudget& operator=(const ReceiveBudget&) = delete;

  [[nodiscard]] std::size_t taken_bytes() const { return taken_bytes_; }

  /// What one connection has of a budget, or waits for.
  class Share {
   public:
    /// `on_taken` runs when what was waited for is there: from inside another share's give_back(), so it must not call
    /// anything here.
    explicit Share(std::function<void()> on_taken) : on_taken_(std::move(on_taken)) {}
    ~Share() { give_back(); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    /// Takes `bytes` (all there is, if that is less) of `budget`, at once or, when false is returned, later. The share
    /// is empty before.
    [[nodiscard]] bool take(ReceiveBudget& budget, std::size_t bytes);
    /// Gives back what was taken, or stops waiting.
    void give_back();

    [[nodiscard]] bool taken() const { return budget_ != nullptr && !waiting_; }
    [[nodiscard]] bool waiting() const { return waiting_; }

   private:
    friend class ReceiveBudget;
    std::function<void()> on_taken_;
    ReceiveBudget* budget_ = nullptr;  // set while it has or waits
    std::size_t bytes_ = 0;
    bool waiting_ = false;
    std::list<Share*>::iterator place_;  // in the queue, while waiting
  };

 private:
  void serve();

  const std::size_t bytes_max_;
  std::size_t taken_bytes_ = 0;
  std::list<Share*> queue_;
};

}  // namespace weightcast
