#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "base/ids.h"
#include "base/time.h"

namespace weightcast {

/// Who fed a download, and how long it lacked a parent. Pure. Owned by a Download, which says what happens.
class FeedRecord {
 public:
  struct Feeder {
    PeerId id{};
    std::string name;
    std::uint64_t bytes = 0;
  };

  /// A new and right chunk came from that parent.
  void handle_chunk(PeerId from, const std::string& name, std::uint32_t bytes) {
    Feeder& feeder = feeders_[from];
    if (feeder.bytes == 0) feeder = {from, name, 0};
    feeder.bytes += bytes;
  }
  void handle_left(PeerId parent) { left_.insert(parent); }
  /// A stripe whose parents were left was without a chunk for so long, in all.
  void handle_interrupted(Duration stripe_total) { interrupted_ = std::max(interrupted_, stripe_total); }

  /// Who sent most, of two equal ones the first to join; without bytes if nobody sent any.
  [[nodiscard]] Feeder most() const {
    const auto found = std::max_element(feeders_.begin(), feeders_.end(),
                                        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    return found == feeders_.end() ? Feeder() : found->second;
  }
  [[nodiscard]] std::size_t feeders() const { return feeders_.size(); }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [id, feeder] : feeders_) sum += feeder.bytes;
    return sum;
  }
  [[nodiscard]] std::uint32_t parents_left() const { return static_cast<std::uint32_t>(left_.size()); }
  /// Of the stripe that lost most.
  [[nodiscard]] Duration interrupted() const { return interrupted_; }

 private:
  std::map<PeerId, Feeder> feeders_;
  std::set<PeerId> left_;
  Duration interrupted_{};
};

}  // namespace weightcast
