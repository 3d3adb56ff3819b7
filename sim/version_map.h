#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace weightcast::sim {

/// One value per version, for the few versions that a node keeps: looked up with every chunk, so that a tree's memory
/// accesses would be most of a large run. The newest are found first. References hold until the next insertion.
template <typename T>
class VersionMap {
 public:
  [[nodiscard]] const T* find(Version version) const {
    const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const auto& e) { return e.first == version; });
    return found == entries_.rend() ? nullptr : &found->second;
  }
  [[nodiscard]] T* find(Version version) { return const_cast<T*>(std::as_const(*this).find(version)); }
  /// Keeps what is there already; whether there was nothing.
  std::pair<T*, bool> emplace(Version version, T value) {
    if (T* kept = find(version)) return {kept, false};
    return {&entries_.emplace_back(version, std::move(value)).second, true};
  }
  void put(Version version, T value) { *emplace(version, T{}).first = std::move(value); }
  void erase(Version version) {
    std::erase_if(entries_, [&](const auto& e) { return e.first == version; });
  }
  template <typename Predicate>
  void erase_if(Predicate predicate) {
    std::erase_if(entries_, [&](const auto& e) { return predicate(e.first); });
  }
  void clear() { entries_.clear(); }

  [[nodiscard]] auto begin() { return entries_.begin(); }
  [[nodiscard]] auto end() { return entries_.end(); }

 private:
  std::vector<std::pair<Version, T>> entries_;
};

}  // namespace weightcast::sim
