#include "transport/core/origin/history/broadcast_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weightcast {
namespace {

// Versions whose times are remembered.
constexpr std::size_t kVersionsMax = 8;

}  // namespace

void BroadcastTimes::handle_wanted(Instant now, Version version) {
  Entry& entry = versions_[version];
  if (!std::exchange(entry.announced, true)) entry.started_at = now;
}

std::vector<Version> BroadcastTimes::handle_published(Version version, Instant started_at) {
  std::vector<Version> ended;
  for (auto& [older, entry] : versions_) {
    if (end(entry)) ended.push_back(older);
  }
  Entry& entry = versions_[version];
  entry = {};
  entry.announced = true;
  entry.started_at = started_at;
  while (versions_.size() > kVersionsMax) versions_.erase(versions_.begin());
  return ended;
}

std::vector<Version> BroadcastTimes::handle_installed(Instant now, const Membership& members) {
  std::vector<Version> ended;
  for (auto& [version, entry] : versions_) {
    // Who joins or is lost has everyone counted; between, an install changes the count by one.
    if (entry.installs_to_count > 0) --entry.installs_to_count;
    if (entry.installs_to_count == 0 && count(now, members, version, entry)) ended.push_back(version);
  }
  return ended;
}

std::vector<Version> BroadcastTimes::count(Instant now, const Membership& members) {
  std::vector<Version> ended;
  for (auto& [version, entry] : versions_) {
    if (count(now, members, version, entry)) ended.push_back(version);
  }
  return ended;
}

void BroadcastTimes::handle_joined() {
  for (auto& [version, entry] : versions_) entry.installs_to_count = 0;
}

const BroadcastTimes::Times* BroadcastTimes::find(Version version) const {
  const auto found = versions_.find(version);
  return found == versions_.end() ? nullptr : &found->second.times;
}

bool BroadcastTimes::count(Instant now, const Membership& members, Version version, Entry& entry) {
  Times& times = entry.times;
  if (!entry.announced || times.t100) return false;
  std::uint32_t active = 0, installed = 0;
  for (const auto& [id, member] : members.all()) {
    if (!member.active()) continue;
    ++active;
    if (member.installed >= version) ++installed;
  }
  if (active == 0) return false;
  const Duration elapsed = now - entry.started_at;
  std::uint32_t next = active - installed;
  const auto note = [&](std::optional<Duration>& t, double fraction) {
    if (t) return;
    const auto wanted = static_cast<std::uint32_t>(std::ceil(fraction * double(active) - 1e-9));
    if (installed >= wanted) {
      t = elapsed;
    } else {
      next = std::min(next, wanted - installed);
    }
  };
  note(times.t50, 0.5);
  note(times.t90, 0.9);
  note(times.t100, 1.0);
  entry.installs_to_count = next;
  return times.t100 && end(entry);
}

bool BroadcastTimes::end(Entry& entry) { return entry.announced && !std::exchange(entry.ended, true); }

}  // namespace weightcast
