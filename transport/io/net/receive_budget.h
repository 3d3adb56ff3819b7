#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>

namespace weightcast {

/// Bounds the memory of arriving frames over many connections. A connection takes a frame's whole length before it
/// reads the body. While the budget lacks that much, the connection does not read, and TCP holds the peer back. First
/// come, first served; but one holder takes a part of it at most, however many connections it has, and waits for itself
/// beyond that. Loop thread only. Outlives its shares. Invariant: taken_bytes() <= bytes_max, and the first share in
/// the queue whose holder may take more waits only while it does not fit.
class ReceiveBudget {
 public:
  static constexpr std::size_t kHoldersMin = 8;  ///< that find room, whatever each of them does

  /// Somebody with one connection or many. Its connections share it.
  struct Holder {
    std::size_t taken_bytes = 0;
  };

  explicit ReceiveBudget(std::size_t bytes_max) : bytes_max_(bytes_max) {}
  ReceiveBudget(const ReceiveBudget&) = delete;
  ReceiveBudget& operator=(const ReceiveBudget&) = delete;

  [[nodiscard]] std::size_t taken_bytes() const { return taken_bytes_; }

  /// One connection's part of a budget, or its place in the queue.
  class Share {
   public:
    /// `on_taken` runs when a waiting share has got its bytes. It runs from inside another share's give_back(), so it
    /// must not call a budget or a share.
    explicit Share(std::function<void()> on_taken) : on_taken_(std::move(on_taken)) {}
    ~Share() { give_back(); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    /// Takes `bytes` of `budget`, or the whole budget if it is smaller. Returns whether it did so at once; if not, the
    /// share waits. The share is empty before the call. Without `holder` only the budget itself is a bound.
    [[nodiscard]] bool take(ReceiveBudget& budget, std::size_t bytes, std::shared_ptr<Holder> holder = nullptr);
    /// Returns the bytes to the budget, or stops waiting.
    void give_back();

    [[nodiscard]] bool taken() const { return budget_ != nullptr && !waiting_; }
    [[nodiscard]] bool waiting() const { return waiting_; }

   private:
    friend class ReceiveBudget;
    std::function<void()> on_taken_;
    ReceiveBudget* budget_ = nullptr;  // set while it has or waits
    std::shared_ptr<Holder> holder_;
    std::size_t bytes_ = 0;
    bool waiting_ = false;
    std::list<Share*>::iterator place_;  // in the queue, while waiting
  };

 private:
  void serve();
  /// Whether the share's holder may take that much more. Who has nothing may always take one frame.
  [[nodiscard]] bool may_take(const Share& share) const;
  void take(Share& share);

  const std::size_t bytes_max_;
  std::size_t taken_bytes_ = 0;
  std::list<Share*> queue_;
};

}  // namespace weightcast
