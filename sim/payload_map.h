#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace weightcast::sim {

/// One value for each of the few payloads that a node keeps. Every chunk looks one up, so a tree's memory accesses
/// would dominate a large run. Finds the newest first. References hold until the next insertion.
template <typename T>
class PayloadMap {
 public:
  [[nodiscard]] const T* find(PayloadId payload) const {
    const auto found =
        std::find_if(entries_.rbegin(), entries_.rend(), [&](const auto& e) { return e.first == payload; });
    return found == entries_.rend() ? nullptr : &found->second;
  }
  [[nodiscard]] T* find(PayloadId payload) { return const_cast<T*>(std::as_const(*this).find(payload)); }
  /// Keeps the value that is there already. Whether there was none.
  std::pair<T*, bool> emplace(PayloadId payload, T value) {
    if (T* kept = find(payload)) return {kept, false};
    return {&entries_.emplace_back(payload, std::move(value)).second, true};
  }
  void put(PayloadId payload, T value) { *emplace(payload, T{}).first = std::move(value); }
  void erase(PayloadId payload) {
    std::erase_if(entries_, [&](const auto& e) { return e.first == payload; });
  }
  template <typename Predicate>
  void erase_if(Predicate predicate) {
    std::erase_if(entries_, [&](const auto& e) { return predicate(e.first); });
  }
  void clear() { entries_.clear(); }

  [[nodiscard]] auto begin() { return entries_.begin(); }
  [[nodiscard]] auto end() { return entries_.end(); }

 private:
  std::vector<std::pair<PayloadId, T>> entries_;
};

}  // namespace weightcast::sim
