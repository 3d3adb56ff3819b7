#include "transport/core/origin/history/publication_history.h"

#include <algorithm>
#include <utility>

#include "proto/limits.h"

namespace weightcast {

PublicationRecord& PublicationHistory::add(Instant now, Version version) {
  // First, so that what is added is not what goes: its number may be the least.
  if (const auto before = records_.find(version); before != records_.end()) {
    erase(before);
  } else if (records_.size() >= kVersionsMax) {
    erase(least_needed());
  }
  PublicationRecord& record = records_[version];
  record.version = version;
  record.started_at = now;
  return record;
}

PublicationHistory::Records::iterator PublicationHistory::least_needed() {
  using End = PublicationRecord::End;
  const auto newest = std::find_if(records_.rbegin(), records_.rend(),
                                   [](const auto& entry) { return entry.second.end != End::kGivenUp; });
  const auto found = std::find_if(records_.begin(), records_.end(), [&](const auto& entry) {
    const bool is_newest = newest != records_.rend() && entry.first == newest->first;
    return entry.second.end != End::kUnderWay && !is_newest;
  });
  return found == records_.end() ? records_.begin() : found;
}

void PublicationHistory::erase(Records::iterator record) {
  courses_ -= record->second.courses.size();
  records_.erase(record);
}

void PublicationHistory::handle_begun(Instant now, const Manifest& manifest) {
  PublicationRecord& record = add(now, manifest.version);
  record.published_unix_ms = manifest.published_unix_ms;
  const PayloadId payload = manifest.id();
  record.snapshot_bytes = payload.is_full() ? manifest.planned_bytes() : manifest.snapshot_bytes();
  PublicationRecord::Making& making = payload.is_full() ? record.taking_over : record.made[payload];
  making.began_at = now;
}

void PublicationHistory::handle_published(Instant now, Instant started_at, const Manifest& manifest) {
  PublicationRecord* record = find(manifest.version);
  if (record == nullptr || record->end != PublicationRecord::End::kUnderWay) record = &add(now, manifest.version);
  record->started_at = started_at;
  record->published_unix_ms = manifest.published_unix_ms;
  record->snapshot_bytes = manifest.snapshot_bytes();
  const PublicationRecord::Making making{started_at, now};
  if (manifest.id().is_full()) {
    record->taking_over = making;
  } else {
    record->made[manifest.id()] = making;
  }
}

void PublicationHistory::handle_wanted(Instant now, const Manifest& manifest) {
  if (find(manifest.version) != nullptr) return;
  PublicationRecord& record = add(now, manifest.version);
  record.published_unix_ms = manifest.published_unix_ms;
  record.snapshot_bytes = manifest.snapshot_bytes();
}

void PublicationHistory::handle_making(Instant now, PayloadId payload) {
  PublicationRecord* record = find(payload.version);
  if (record == nullptr || record->end != PublicationRecord::End::kUnderWay) return;
  record->made.try_emplace(payload, PublicationRecord::Making{now, std::nullopt});
}

void PublicationHistory::handle_made(Instant now, PayloadId payload) {
  PublicationRecord* record = find(payload.version);
  if (record == nullptr || record->end != PublicationRecord::End::kUnderWay) return;
  if (const auto making = record->made.find(payload); making != record->made.end()) making->second.ended_at = now;
}

WorkerCourse* PublicationHistory::course_of(const Member& member, Version version) {
  PublicationRecord* record = find(version);
  if (record == nullptr) return nullptr;
  if (const auto known = record->courses.find(member.id); known != record->courses.end()) return &known->second;
  for (auto& [older, other] : records_) {
    if (courses_ < kCoursesMax) break;
    if (older >= version) return nullptr;
    courses_ -= other.courses.size();
    other.courses.clear();
  }
  if (courses_ >= kCoursesMax) return nullptr;
  ++courses_;
  WorkerCourse& course = record->courses[member.id];
  course.name = member.name;
  return &course;
}

void PublicationHistory::handle_joined(Instant now, const Member& member) {
  for (auto& [version, record] : records_) {
    if (record.end != PublicationRecord::End::kUnderWay || now <= record.started_at) continue;
    WorkerCourse* const course = member.installed > version ? nullptr : course_of(member, version);
    if (course == nullptr || course->installed_at) continue;
    if (course->left_at) course->gone += now - *std::exchange(course->left_at, std::nullopt);
    if (course->told_at) {
      course->rejoined_at = now;
    } else if (!course->joined_at) {
      course->joined_at = now;
    }
    // Its word that it has installed the version was lost with the connection before.
    if (member.installed == version) course->installed_at = now;
  }
}

void PublicationHistory::handle_silent(const Member& member, Version version) {
  if (WorkerCourse* const course = course_of(member, version)) ++course->left_as_silent;
}

void PublicationHistory::handle_left(Instant now, const Member& member) {
  for (auto& [version, record] : records_) {
    if (record.end != PublicationRecord::End::kUnderWay || member.installed >= version) continue;
    // Nobody waited for one that only stood by.
    const bool counted = !member.standby && !member.foreign && member.other_run == kNoRun;
    if (!counted && !record.courses.contains(member.id)) continue;
    WorkerCourse* const course = course_of(member, version);
    if (course != nullptr && !course->left_at) course->left_at = now;
  }
}

void PublicationHistory::handle_times(Version version, const BroadcastTimes::Times& times) {
  PublicationRecord* const record = find(version);
  if (record == nullptr || record->end != PublicationRecord::End::kSuperseded) return;
  record->times = times;
  if (times.t100) record->installed = record->workers;
}

void PublicationHistory::handle_told(Instant now, const Member& member, PayloadId payload) {
  WorkerCourse* const course = course_of(member, payload.version);
  if (course == nullptr) return;
  course->payload = payload;
  course->left_at.reset();
  if (!course->told_at) course->told_at = now;
}

void PublicationHistory::handle_failed(const Member& member, Version version, std::string_view why) {
  if (WorkerCourse* const course = course_of(member, version)) course->failure = why.substr(0, kReasonBytesMax);
}

void PublicationHistory::handle_installed(Instant now, const Member& member, Version before, Version version,
                                          const std::optional<InstallPhases>& phases) {
  // Whoever has the version has those before it behind it, too.
  for (auto at = records_.upper_bound(before); at != records_.end() && at->first <= version; ++at) {
    PublicationRecord& record = at->second;
    const bool counts = record.end == PublicationRecord::End::kSuperseded && record.installed < record.workers;
    if (counts) ++record.installed;
  }
  const PublicationRecord* const record = find(version);
  // It was here before this origin knew of the version.
  if (record == nullptr || (version <= before && !record->courses.contains(member.id))) return;
  WorkerCourse* const course = course_of(member, version);
  if (course == nullptr) return;
  if (!course->installed_at) course->installed_at = now;
  if (!course->phases) course->phases = phases;
}

void PublicationHistory::handle_taken(const Member& member, Version version, Duration after) {
  PublicationRecord* const record = find(version);
  if (record == nullptr) return;
  const auto course = record->courses.find(member.id);
  if (course == record->courses.end() || !course->second.phases || course->second.taken_after) return;
  course->second.taken_after = after;
  ++record->taken;
}

PublicationRecord* PublicationHistory::find(Version version) {
  const auto found = records_.find(version);
  return found == records_.end() ? nullptr : &found->second;
}

}  // namespace weightcast
