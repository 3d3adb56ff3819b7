#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"

namespace weightcast::sim {

using NodeIndex = std::uint32_t;
using LinkIndex = std::uint32_t;
using FrameIndex = std::uint32_t;
inline constexpr std::uint32_t kNoIndex = 0xffffffff;

enum class EventKind : std::uint8_t {
  kTransmitted,  ///< a: node, b: its incarnation. Its uplink has sent a frame.
  kArrive,       ///< a: frame
  kDial,         ///< a: link, b: attempts so far. The first packet reaches the other host.
  kAccept,       ///< a: link
  kConnected,    ///< a: link
  kClosed,       ///< a: link, b: which end learns of it
  kTimer,        ///< a: node, b: number of the timer
  kDisk,         ///< a: operation
  kArchive,      ///< a: read
  kFault,        ///< a: index of the fault that begins
  kFaultEnd,     ///< a: index of the fault that ends
  kRead,         ///< a: link, b: the end that reads what has arrived
  kTask,         ///< a: task of a SimClock
};

struct Event {
  Instant at{};
  std::uint64_t order = 0;  ///< in which events were scheduled; of one instant they happen in that order
  EventKind kind{};
  std::uint32_t a = 0;
  std::uint32_t b = 0;
};

/// Future events, the earliest first. A heap with four children per node: it has half the depth of a binary one, and
/// the children of a node share a cache line or two.
class EventQueue {
 public:
  void schedule(Instant at, EventKind kind, std::uint32_t a = 0, std::uint32_t b = 0) {
    std::size_t hole = heap_.size();
    const Event event{at, next_order_++, kind, a, b};
    heap_.push_back(event);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / kArity;
      if (!before(event, heap_[parent])) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = event;
  }

  [[nodiscard]] std::optional<Event> pop() {
    if (heap_.empty()) return std::nullopt;
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sift_down(last);
    return first;
  }

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] std::optional<Instant> next_at() const {
    return heap_.empty() ? std::nullopt : std::optional(heap_.front().at);
  }

  /// Moves every event to the time that `moved` gives for it, and sorts them all.
  template <typename Moved>
  void move_all(const Moved& moved) {
    for (Event& event : heap_) event.at = moved(event);
    std::sort(heap_.begin(), heap_.end(), before);  // which is a heap
  }

 private:
  static constexpr std::size_t kArity = 4;

  static bool before(const Event& x, const Event& y) { return x.at != y.at ? x.at < y.at : x.order < y.order; }

  void sift_down(const Event& event) {
    std::size_t hole = 0;
    for (;;) {
      const std::size_t first = hole * kArity + 1;
      if (first >= heap_.size()) break;
      std::size_t least = first;
      const std::size_t end = first + kArity < heap_.size() ? first + kArity : heap_.size();
      for (std::size_t child = first + 1; child < end; ++child) {
        if (before(heap_[child], heap_[least])) least = child;
      }
      if (!before(heap_[least], event)) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = event;
  }

  std::vector<Event> heap_;
  std::uint64_t next_order_ = 0;
};

}  // namespace weightcast::sim
