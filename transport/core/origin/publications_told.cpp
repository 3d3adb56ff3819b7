// What the origin remembers of its publications, and tells of them.
#include <fmt/format.h>

#include <algorithm>

#include "base/settings/endpoint.h"
#include "transport/core/origin/history/publication_text.h"
#include "transport/core/origin/history/slowest_worker.h"
#include "transport/core/origin/publications.h"

namespace weightcast {
namespace {

constexpr std::size_t kMissingNamesMax = 8;

/// "b at 10.0.0.2:7400 (connection refused)": whom it has tried last. "": it reaches all whom it has tried.
std::string whom_it_cannot_reach(const Membership& members, PeerId id) {
  const Member* member = members.find(id);
  if (member == nullptr || member->cannot_reach.empty()) return "";
  const auto& [other_id, unreached] =
      *std::ranges::max_element(member->cannot_reach, {}, [](const auto& entry) { return entry.second.tried_at; });
  const Member* other = members.find(other_id);
  return other == nullptr
             ? ""
             : fmt::format("{} at {} ({})", other->name, Endpoint{other->host, other->port}.to_string(), unreached.why);
}

}  // namespace

void Publications::judge(Instant now, const std::vector<Version>& ended) {
  for (const Version version : ended) {
    at(version).handle_end(now);
    ++ended_count_;
    const BroadcastTimes::Times* times = times_.find(version);
    const bool complete = times != nullptr && times->t100;
    end_record(now, version, complete ? PublicationRecord::End::kComplete : PublicationRecord::End::kSuperseded);
  }
  times_.for_each(
      [&](Version version, const BroadcastTimes::Times& times) { context_.history.handle_times(version, times); });
}

void Publications::refresh(PublicationRecord& record) {
  record.sent_bytes = std::max(record.sent_bytes, context_.uploads.bytes_sent_of(record.version));
  const BroadcastTimes::Times* times = times_.find(record.version);  // null while it is taken over
  const PublicationProgress now = progress(record.version, times == nullptr ? BroadcastTimes::Times() : *times);
  record.times = {now.t50, now.t90, now.t100};
  record.workers = now.active;
  record.installed = now.installed;
  const Member* behind = furthest_behind(context_.members, record.version);
  record.slowest_id = behind == nullptr ? std::nullopt : std::optional(behind->id);
  record.slowest = behind == nullptr ? "" : behind->name;
  record.why = behind == nullptr ? "" : where_it_is(*behind, record.version);
  if (main_plan(record.version) == nullptr) return;
  record.kind = now.kind;
  record.payload_bytes = now.payload_bytes;
  record.topology = now.topology;
  record.predicted = now.predicted;
}

void Publications::end_record(Instant now, Version version, PublicationRecord::End end, std::string_view why) {
  PublicationRecord* const record = context_.history.find(version);
  if (record == nullptr || record->end != PublicationRecord::End::kUnderWay) return;
  refresh(*record);
  record->end = end;
  record->ended_at = now;
  if (end == PublicationRecord::End::kSuperseded) record->superseded_by = latest_;
  if (end != PublicationRecord::End::kSuperseded) {
    record->slowest_id.reset();
    record->slowest.clear();
    record->why = why;
  }
  if (end == PublicationRecord::End::kComplete) {
    for (auto& [id, course] : record->courses) course.unreached = whom_it_cannot_reach(context_.members, id);
    if (const auto slowest = slowest_worker(*record, context_.config.name)) {
      record->slowest_id = slowest->id;
      record->slowest = record->courses.at(slowest->id).name;
      record->cause = to_string(slowest->cause);
      record->why = slowest->why;
    }
  }
  context_.actions.push(action::milestone(describe(*record)));
}

const PublicationHistory& Publications::history() {
  for (const auto& [version, record] : context_.history.all()) {
    if (record.end == PublicationRecord::End::kUnderWay) refresh(*context_.history.find(version));
  }
  return context_.history;
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
  const PayloadPlan* plan = main_plan(version);
  if (plan != nullptr) {
    progress.kind = plan->id().kind;
    progress.payload_bytes = plan->manifest().planned_bytes();
    progress.topology = plan->plan().topology;
    progress.predicted = plan->plan().predicted_t100;
  } else if (const Publication* publication = find_version(version)) {
    progress.kind = publication->manifest()->kind;
    progress.payload_bytes = publication->manifest()->payload_bytes;
  }
  progress.undecided = plan == nullptr && is_making_for(version);
  for (const auto& [id, member] : context_.members.all()) {
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
  const PayloadPlan* plan = main_plan(latest_);
  return plan == nullptr ? nullptr : &plan->plan();
}

}  // namespace weightcast
