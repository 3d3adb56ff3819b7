#include "transport/archive/archive_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace weightcast {
namespace {

/// The versions that an archive leads to.
struct Reach {
  std::map<Version, const ArchivedPayload*> versions;  // with the last payload on the way
  Version last_whole{};

  [[nodiscard]] Version newest() const { return versions.empty() ? kNoVersion : versions.rbegin()->first; }
  [[nodiscard]] const std::string& files_of(Version version) const { return versions.at(version)->files; }
};

Reach reach_of(const ArchiveIndex& index) {
  std::vector<const ArchivedPayload*> sorted;
  for (const ArchivedPayload& payload : index.payloads) sorted.push_back(&payload);
  // A whole version before the patches to it, and of these the shortest step: the nearest whole one is what counts.
  std::ranges::sort(sorted, [](const ArchivedPayload* a, const ArchivedPayload* b) {
    if (a->id.version != b->id.version) return a->id.version < b->id.version;
    if (a->id.is_full() != b->id.is_full()) return a->id.is_full();
    return a->id.base > b->id.base;
  });
  Reach reach;
  for (const ArchivedPayload* payload : sorted) {
    const PayloadId id = payload->id;
    if (id.is_patch() && (!reach.versions.contains(id.base) || reach.files_of(id.base) != payload->files)) continue;
    if (id.is_full()) reach.last_whole = id.version;
    reach.versions.try_emplace(id.version, payload);
  }
  return reach;
}

std::string range_text(const Reach& reach) {
  if (reach.versions.empty()) return "it leads to no version";
  return fmt::format("it leads to {} version{}, from {} to {}", reach.versions.size(),
                     reach.versions.size() == 1 ? "" : "s", reach.versions.begin()->first.value, reach.newest().value);
}

}  // namespace

std::optional<PayloadId> next_to_archive(const ArchiveIndex& index, std::span<const LoggedPayload> logged,
                                         std::uint64_t every) {
  const Reach reach = reach_of(index);
  const Version newest = reach.newest();
  const LoggedPayload* patch = nullptr;
  for (const LoggedPayload& each : logged) {
    const bool leads_on = each.id.is_patch() && each.id.version > newest && reach.versions.contains(each.id.base) &&
                          reach.files_of(each.id.base) == each.files;
    if (!leads_on) continue;
    const bool better = patch == nullptr || each.id.version < patch->id.version ||
                        (each.id.version == patch->id.version && each.id.base > patch->id.base);
    if (better) patch = &each;
  }

  // Versions since the last whole one, up to `version`.
  const auto distance = [&](Version version) {
    const auto from = reach.versions.upper_bound(reach.last_whole);
    const auto to = reach.versions.upper_bound(version);
    return static_cast<std::uint64_t>(std::distance(from, to)) + (reach.versions.contains(version) ? 0 : 1);
  };
  const LoggedPayload* whole = nullptr;
  for (const LoggedPayload& each : logged) {
    if (!each.id.is_full() || !each.provable || each.id.version <= reach.last_whole) continue;
    const Version version = each.id.version;
    const bool there = reach.versions.contains(version);
    if (!there && version < newest) continue;
    const bool due = reach.last_whole == kNoVersion || (there ? distance(version) >= every : !each.may_get_patch);
    if (due && (whole == nullptr || version < whole->id.version)) whole = &each;
  }
  // The node may delete either at any time: the smaller one first.
  if (patch != nullptr) return patch->id;
  if (whole != nullptr) return whole->id;
  return std::nullopt;
}

Result<std::vector<ArchivedPayload>> way_to(const ArchiveIndex& index, Version version) {
  const Reach reach = reach_of(index);
  if (version == kNoVersion) version = reach.newest();
  const auto found = reach.versions.find(version);
  if (found == reach.versions.end()) {
    return fail(Errc::kNotFound, Op::kRead,
                version == kNoVersion
                    ? "the archive is empty"
                    : fmt::format("the archive does not lead to version {}: {}", version.value, range_text(reach)));
  }
  std::vector<ArchivedPayload> way;
  for (auto at = found;; at = reach.versions.find(at->second->id.base)) {
    way.push_back(*at->second);
    if (way.back().id.is_full()) break;
  }
  std::ranges::reverse(way);
  return way;
}

Version newest_in(const ArchiveIndex& index) { return reach_of(index).newest(); }

}  // namespace weightcast
