#include "transport/node/history_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "proto/limits.h"
#include "transport/node/node.h"

namespace weightcast {
namespace {

local::PublicationEntry entry_of(const PublicationRecord& record, Instant now) {
  local::PublicationEntry entry;
  entry.version = record.version.value;
  entry.published_unix_ms = record.published_unix_ms;
  entry.state = to_string(record.end);
  entry.kind = kind_of({record.version, record.kind});
  entry.snapshot_bytes = record.snapshot_bytes;
  entry.payload_bytes = record.payload_bytes;
  entry.sent_bytes = record.sent_bytes;
  if (record.times.t50) entry.t50_s = to_seconds(*record.times.t50);
  if (record.times.t90) entry.t90_s = to_seconds(*record.times.t90);
  if (record.times.t100) entry.t100_s = to_seconds(*record.times.t100);
  entry.predicted_s = to_seconds(record.predicted);
  entry.topology = to_string(record.topology);
  entry.workers = record.workers;
  entry.installed = record.installed;
  entry.take_over_s = to_seconds(record.taking_over.lasted());
  entry.encode_s = to_seconds(record.encoding().lasted());
  entry.pack_s = to_seconds(record.packing().lasted());
  const auto begun = [&](const PublicationRecord::Making& making) {
    return making.began_at ? std::optional(to_seconds(*making.began_at - record.started_at)) : std::nullopt;
  };
  entry.take_over_at_s = begun(record.taking_over);
  entry.encode_at_s = begun(record.encoding());
  entry.pack_at_s = begun(record.packing());
  entry.elapsed_s = to_seconds(record.ended_at.value_or(now) - record.started_at);
  entry.slowest = record.slowest;
  entry.cause = record.cause;
  entry.why = cut_text(record.why, kReasonBytesMax);
  return entry;
}

local::WorkerCourse course_of(const WorkerCourse& course, const PublicationRecord& record,
                              std::string_view origin_name) {
  const auto since_start = [&](Instant at) { return to_seconds(at - record.started_at); };
  local::WorkerCourse out;
  out.name = course.name;
  if (course.payload.version != kNoVersion) out.payload = kind_of(course.payload);
  if (const auto joined = course.joined_at ? course.joined_at : course.rejoined_at) out.joined_s = since_start(*joined);
  if (course.told_at) out.told_s = since_start(*course.told_at);
  if (course.installed_at) out.installed_s = since_start(*course.installed_at);
  out.failure = cut_text(course.failure, 256);
  out.has_phases = course.phases.has_value();
  if (!course.phases) return out;
  const InstallPhases& phases = *course.phases;
  out.waiting_s = to_seconds(phases.waiting);
  out.asking_s = to_seconds(phases.asking);
  out.receiving_s = to_seconds(phases.receiving);
  out.storing_s = to_seconds(phases.storing);
  out.applying_s = to_seconds(phases.applying);
  out.switching_s = to_seconds(phases.switching);
  out.disk_behind_s = to_seconds(phases.disk_behind);
  out.interrupted_s = to_seconds(phases.interrupted);
  out.given_up_s = to_seconds(phases.given_up);
  if (course.taken_after) out.engine_s = to_seconds(*course.taken_after);
  out.parents_left = phases.parents_left;
  out.bytes = phases.bytes;
  out.fed_bytes = phases.fed_bytes;
  if (phases.fed_bytes == 0) return out;
  const auto parent = record.courses.find(phases.fed_by);
  if (phases.fed_by == kOriginId) {
    out.fed_by = origin_name;
  } else if (parent != record.courses.end()) {
    out.fed_by = parent->second.name;
  }
  return out;
}

}  // namespace

Result<local::HistoryReply> history_reply(const PublicationHistory& history, Version version,
                                          std::string_view origin_name, Instant now,
                                          const EarlierPublications& earlier) {
  local::HistoryReply reply;
  if (version == kNoVersion) {
    std::map<Version, local::PublicationEntry> entries;
    for (const auto& [known, record] : history.all()) entries.emplace(known, entry_of(record, now));
    for (const auto& [known, before] : earlier) entries.emplace(known, before.entry);
    while (entries.size() > PublicationHistory::kVersionsMax) entries.erase(entries.begin());
    for (auto& [_, entry] : entries) reply.publications.push_back(std::move(entry));
    return reply;
  }
  const auto found = history.all().find(version);
  if (found == history.all().end()) {
    if (const auto before = earlier.find(version); before != earlier.end()) {
      return local::decode_history(before->second.reply);
    }
    std::set<Version> known;
    for (const auto& [one, _] : history.all()) known.insert(one);
    for (const auto& [one, _] : earlier) known.insert(one);
    return fail(Errc::kNotFound, Op::kRead,
                known.empty()
                    ? fmt::format("version {}: this origin has published nothing that it remembers", version.value)
                    : fmt::format("version {}: this origin remembers versions {} to {}", version.value,
                                  known.begin()->value, known.rbegin()->value));
  }
  const PublicationRecord& record = found->second;
  reply.publications.push_back(entry_of(record, now));
  std::vector<const WorkerCourse*> courses;
  for (const auto& [id, course] : record.courses) courses.push_back(&course);
  std::ranges::stable_sort(courses, std::greater(),
                           [](const WorkerCourse* course) { return course->installed_at.value_or(Instant::max()); });
  reply.workers_total = static_cast<std::uint32_t>(courses.size());
  for (const WorkerCourse* course : courses) {
    if (reply.workers.size() == kHistoryWorkersMax) break;
    reply.workers.push_back(course_of(*course, record, origin_name));
  }
  return reply;
}

}  // namespace weightcast
