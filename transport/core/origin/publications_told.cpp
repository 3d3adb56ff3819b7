// What the origin remembers of its publications, and tells of them.
#include "transport/core/origin/history/publication_text.h"
#include "transport/core/origin/history/slowest_worker.h"
#include "transport/core/origin/publications.h"

namespace weightcast {
namespace {

constexpr std::size_t kMissingNamesMax = 8;

}  // namespace

void Publications::refresh(PublicationRecord& record) {
  record.sent_bytes = std::max(record.sent_bytes, uploads_.bytes_sent_of(record.version));
  const BroadcastTimes::Times* times = times_.find(record.version);  // null while it is taken over
  const PublicationProgress now = progress(record.version, times == nullptr ? BroadcastTimes::Times() : *times);
  record.times = {now.t50, now.t90, now.t100};
  record.workers = now.active;
  record.installed = now.installed;
  const Member* behind = furthest_behind(members_, record.version);
  record.slowest_id = behind == nullptr ? std::nullopt : std::optional(behind->id);
  record.slowest = behind == nullptr ? "" : behind->name;
  record.why = behind == nullptr ? "" : where_it_is(*behind, record.version);
  if (plans_.main_publication(record.version) == nullptr) return;
  record.kind = now.kind;
  record.payload_bytes = now.payload_bytes;
  record.topology = now.topology;
  record.predicted = now.predicted;
}

void Publications::end_record(Instant now, Version version, PublicationRecord::End end, std::string_view why) {
  PublicationRecord* const record = history_.find(version);
  if (record == nullptr || record->end != PublicationRecord::End::kUnderWay) return;
  refresh(*record);
  record->end = end;
  record->ended_at = now;
  if (end == PublicationRecord::End::kSuperseded) record->superseded_by = payloads_.latest();
  if (end != PublicationRecord::End::kSuperseded) {
    record->slowest_id.reset();
    record->slowest.clear();
    record->why = why;
  }
  if (end == PublicationRecord::End::kComplete) {
    if (const auto slowest = slowest_worker(*record, config_.name)) {
      record->slowest_id = slowest->id;
      record->slowest = record->courses.at(slowest->id).name;
      record->cause = to_string(slowest->cause);
      record->why = slowest->why;
    }
  }
  actions_.push(action::milestone(describe(*record)));
}

const PublicationHistory& Publications::history() {
  for (const auto& [version, record] : history_.all()) {
    if (record.end == PublicationRecord::End::kUnderWay) refresh(*history_.find(version));
  }
  return history_;
}

std::optional<PublicationProgress> Publications::progress(Version version) const {
  const BroadcastTimes::Times* times = times_.find(version);
  return times == nullptr ? std::nullopt : std::optional(progress(version, *times));
}

PublicationProgress Publications::progress(Version version, const BroadcastTimes::Times& times) const {
  PublicationProgress progress;
  progress.version = version;
  progress.t50 = times.t50;
  progress.t90 = times.t90;
  progress.t100 = times.t100;
  const Publication* publication = plans_.main_publication(version);
  if (publication != nullptr) {
    progress.kind = publication->id().kind;
    progress.payload_bytes = publication->manifest().planned_bytes();
    progress.topology = publication->plan().topology;
    progress.predicted = publication->plan().predicted_t100;
  } else if (const Manifest* manifest = payloads_.find_version(version)) {
    progress.kind = manifest->kind;
    progress.payload_bytes = manifest->payload_bytes;
  }
  progress.undecided = publication == nullptr && payloads_.is_making_for(version);
  for (const auto& [id, member] : members_.all()) {
    if (!member.active()) continue;
    ++progress.active;
    if (member.installed >= version) {
      ++progress.installed;
    } else if (progress.missing.size() < kMissingNamesMax) {
      progress.missing.push_back(member.name);
    }
  }
  return progress;
}

const Plan* Publications::latest_plan() const {
  const Publication* publication = plans_.main_publication(payloads_.latest());
  return publication == nullptr ? nullptr : &publication->plan();
}

}  // namespace weightcast
