#include "transport/core/origin/history/publication_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"

namespace weightcast {
namespace {

double share_of(const Member& member, Version version) {
  if (member.receiving.version != version || member.chunks_total == 0) return 0;
  return std::min(1.0, double(member.chunks_verified) / member.chunks_total);
}

std::string how_it_ended(const PublicationRecord& record) {
  const double after_s = record.ended_at ? to_seconds(*record.ended_at - record.started_at) : 0;
  const std::string had = fmt::format("{} of {} workers have it", record.installed, record.workers);
  switch (record.end) {
    case PublicationRecord::End::kComplete:
      return fmt::format("is at all {} workers after {:.2f} s", record.workers,
                         record.times.t100 ? to_seconds(*record.times.t100) : after_s);
    case PublicationRecord::End::kSuperseded:
      return fmt::format("is superseded by version {} after {:.2f} s; {}", record.superseded_by.value, after_s, had);
    case PublicationRecord::End::kGivenUp: return fmt::format("is given up after {:.2f} s; {}", after_s, had);
    case PublicationRecord::End::kUnderWay: break;
  }
  return fmt::format("is under way; {}", had);
}

std::string bytes_words(const PublicationRecord& record) {
  const std::string whole = format_bytes(record.snapshot_bytes);
  const std::string payload = format_bytes(record.payload_bytes);
  std::string words = whole;
  if (record.kind == PayloadKind::kPatch) words = fmt::format("{} by a patch of {}", whole, payload);
  if (record.kind == PayloadKind::kPacked) words = fmt::format("{} packed to {}", whole, payload);
  return words + fmt::format(", {} sent", format_bytes(record.sent_bytes));
}

}  // namespace

std::string describe(const PublicationRecord& record) {
  std::string line = fmt::format("version {} {}", record.version.value, how_it_ended(record));
  if (record.predicted > Duration::zero()) {
    line += fmt::format(" (predicted {:.2f} s by {})", to_seconds(record.predicted), to_string(record.topology));
  }
  line += fmt::format(": {}", bytes_words(record));
  for (const auto& [making, what] :
       {std::pair(record.taking_over, "taken over"), std::pair(record.encoding(), "encoded"),
        std::pair(record.packing(), "packed"), std::pair(record.hashing(), "hashed")}) {
    if (making.ended_at) line += fmt::format(", {} in {:.2f} s", what, to_seconds(making.lasted()));
  }
  if (record.slowest_id) {
    line += fmt::format("; {} is {}", record.end == PublicationRecord::End::kComplete ? "slowest" : "furthest behind",
                        record.slowest);
    const auto course = record.courses.find(*record.slowest_id);
    if (course != record.courses.end() && course->second.phases) {
      if (course->second.told_at) {
        line += fmt::format(", told after {:.2f} s", to_seconds(*course->second.told_at - record.started_at));
      }
      line += fmt::format(", {}", to_string(*course->second.phases));
    }
  }
  if (!record.why.empty()) line += fmt::format(": {}", record.why);
  return line;
}

const Member* furthest_behind(const Membership& members, Version version) {
  const Member* furthest = nullptr;
  for (const auto& [id, member] : members.all()) {
    if (!member.active() || member.installed >= version) continue;
    if (furthest == nullptr || share_of(member, version) < share_of(*furthest, version)) furthest = &member;
  }
  return furthest;
}

std::string where_it_is(const Member& member, Version version) {
  if (member.failed == version) return fmt::format("it could not install it: {}", member.last_error);
  if (member.receiving.version == version) {
    return fmt::format("it has {:.0f} % of it", 100 * share_of(member, version));
  }
  if (member.receiving != PayloadId{}) return fmt::format("it still receives {}", to_string(member.receiving));
  return "it has not begun";
}

}  // namespace weightcast
