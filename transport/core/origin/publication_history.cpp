#include "transport/core/origin/publication_history.h"

#include <algorithm>
#include <utility>

#include "proto/limits.h"

namespace weightcast {

std::string_view to_string(PublicationRecord::End end) {
  switch (end) {
    case PublicationRecord::End::kUnderWay: return "under way";
    case PublicationRecord::End::kComplete: return "complete";
    case PublicationRecord::End::kSuperseded: return "superseded";
    case PublicationRecord::End::kGivenUp: return "given up";
  }
  return "";
}

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

void PublicationHistory::handle_begun(Instant now, Version version) { add(now, version).taking_over.began_at = now; }

void PublicationHistory::handle_published(Instant now, Instant started_at, const Manifest& manifest) {
  PublicationRecord* record = find(manifest.version);
  if (record == nullptr || record->end != PublicationRecord::End::kUnderWay) record = &add(now, manifest.version);
  record->started_at = started_at;
  record->published_unix_ms = manifest.published_unix_ms;
  record->snapshot_bytes = manifest.payload_bytes;
  record->taking_over = {started_at, now};
}

void PublicationHistory::handle_wanted(Instant now, const Manifest& manifest) {
  if (find(manifest.version) != nullptr) return;
  PublicationRecord& record = add(now, manifest.version);
  record.published_unix_ms = manifest.published_unix_ms;
  record.snapshot_bytes = manifest.payload_bytes;
}

void PublicationHistory::handle_making(Instant now, PayloadId payload) {
  PublicationRecord* record = find(payload.version);
  if (record == nullptr || payload.is_full()) return;
  PublicationRecord::Making& making = payload.is_patch() ? record->encoding : record->packing;
  if (!making.began_at) making.began_at = now;
}

void PublicationHistory::handle_made(Instant now, PayloadId payload) {
  PublicationRecord* record = find(payload.version);
  if (record == nullptr || payload.is_full()) return;
  (payload.is_patch() ? record->encoding : record->packing).ended_at = now;
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
    WorkerCourse* const course = course_of(member, version);
    if (course == nullptr) continue;
    if (member.installed >= version) {
      // Its word that it has installed the version was lost with the connection before.
      if (member.installed == version && !course->installed_at) course->installed_at = now;
    } else if (course->told_at) {
      course->rejoined_at = now;
    } else if (!course->joined_at) {
      course->joined_at = now;
    }
  }
}

void PublicationHistory::handle_told(Instant now, const Member& member, PayloadId payload) {
  WorkerCourse* const course = course_of(member, payload.version);
  if (course == nullptr) return;
  course->payload = payload;
  if (!course->told_at) course->told_at = now;
}

void PublicationHistory::handle_failed(const Member& member, Version version, std::string_view why) {
  if (WorkerCourse* const course = course_of(member, version)) course->failure = why.substr(0, kReasonBytesMax);
}

void PublicationHistory::handle_installed(Instant now, const Member& member, Version version,
                                          const std::optional<InstallPhases>& phases) {
  WorkerCourse* const course = course_of(member, version);
  if (course == nullptr || course->installed_at) return;
  course->installed_at = now;
  course->phases = phases;
}

PublicationRecord* PublicationHistory::find(Version version) {
  const auto found = records_.find(version);
  return found == records_.end() ? nullptr : &found->second;
}

}  // namespace weightcast
