#include "transport/core/origin/history/slowest_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "base/units.h"

namespace weightcast {
namespace {

// What a worker says may come to any rate, and is shown as a whole number.
constexpr double kRateMax = 1e18;

// A part that others have, too, is the cause if it is so much of the whole longer than theirs.
constexpr int kShareOfExcess = 10;
// Of what is no part of a right course. A stripe that lost its parent for a second tells more than any rate.
constexpr int kShareOfFault = 50;
// What the origin needs to make a version is the cause if it is that much of the whole, and the links kept to the plan.
constexpr int kShareOfOrigin = 5;
// Rates that differ by less are the same.
constexpr double kSameRate = 1.05;

struct Part {
  SlowCause cause{};
  Duration lasts{};
};
using Parts = std::vector<Part>;

Part longest(const Parts& parts) {
  return *std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.lasts < b.lasts; });
}

Duration lasts_of(const Parts& parts, SlowCause cause) {
  Duration sum{};
  for (const Part& part : parts) sum += part.cause == cause ? part.lasts : Duration::zero();
  return sum;
}

std::string count_text(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

bool is_fault(SlowCause cause) {
  switch (cause) {
    case SlowCause::kReconnected:
    case SlowCause::kFailed:
    case SlowCause::kGaveUp:
    case SlowCause::kLostParents:
    case SlowCause::kJoinedLate: return true;
    default: return false;
  }
}

/// The ways of the workers of one publication, and the questions that are asked of them.
class Courses {
 public:
  Courses(const PublicationRecord& record, std::string_view origin_name) : record_(record), origin_name_(origin_name) {}

  [[nodiscard]] const WorkerCourse* find(PeerId id) const {
    const auto found = record_.courses.find(id);
    return found == record_.courses.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::string_view name_of(PeerId id) const {
    if (id == kOriginId) return origin_name_;
    const WorkerCourse* course = find(id);
    return course == nullptr ? std::string_view("a worker that is not known any more") : course->name;
  }

  /// When it had the last chunk, by the origin's clock. Of the origin: when it had made the last one of `payload`.
  [[nodiscard]] std::optional<Instant> had_all_at(PeerId id, PayloadId payload) const {
    if (id == kOriginId) return record_.making_of(payload).ended_at;
    const WorkerCourse* course = find(id);
    if (course == nullptr || !course->installed_at || !course->phases) return std::nullopt;
    const InstallPhases& phases = *course->phases;
    return *course->installed_at - phases.storing - phases.applying - phases.switching;
  }

  [[nodiscard]] Duration since_start(Instant at) const { return at - record_.started_at; }

  /// Who set the pace at which that worker received; itself, its parent, one above, or the origin.
  [[nodiscard]] PeerId pacemaker_of(PeerId id) const {
    std::set<PeerId> passed;
    while (id != kOriginId && passed.insert(id).second) {
      const WorkerCourse* course = find(id);
      if (course == nullptr || !course->phases || course->phases->fed_bytes == 0) break;
      const InstallPhases& phases = *course->phases;
      const auto here = had_all_at(id, course->payload), above = had_all_at(phases.fed_by, course->payload);
      if (!here || !above) break;
      const Duration lag = *here - *above;
      if (lag > std::max(kHopSlack, (phases.asking + phases.receiving) / 10)) break;
      // A fault that it had itself made it so late.
      if (lag > kHopSlack && 2 * (phases.interrupted + phases.disk_behind + course->gone) >= lag) break;
      id = phases.fed_by;
    }
    return id;
  }

  /// Before the worker could begin; of the first cause.
  [[nodiscard]] Part before_begun(const WorkerCourse& course) const {
    if (began_anew(course)) {
      return {course.failure.empty() ? SlowCause::kReconnected : SlowCause::kFailed,
              *course.rejoined_at - *course.told_at};
    }
    if (course.joined_at) return {SlowCause::kJoinedLate, *course.joined_at - record_.started_at};
    return {SlowCause::kOrigin, course.told_at ? *course.told_at - record_.started_at : Duration::zero()};
  }

  static void add_waiting(const WorkerCourse& course, Parts& parts) {
    const InstallPhases& phases = *course.phases;
    if (!course.failure.empty()) {
      parts.push_back({SlowCause::kFailed, phases.waiting});
      return;
    }
    parts.push_back({SlowCause::kVersionBefore, phases.waiting - phases.given_up});
    parts.push_back({SlowCause::kGaveUp, phases.given_up});
  }

  /// Since it was told, and in no phase: its word came late, or it is not right.
  [[nodiscard]] static Part elsewhere(const WorkerCourse& course) {
    if (!course.told_at || !course.installed_at) return {};
    Duration lasts = *course.installed_at - *course.told_at - course.phases->total();
    if (began_anew(course)) lasts -= *course.rejoined_at - *course.told_at;
    return {course.rejoined_at ? SlowCause::kReconnected : SlowCause::kUnknown, lasts};
  }

  /// What receiving was made of.
  static void add_transfer(const InstallPhases& phases, Parts& parts) {
    if (phases.fed_bytes == 0) {
      parts.push_back({SlowCause::kDisk, phases.asking + phases.receiving + phases.storing});
      return;
    }
    const Duration lost = std::min(phases.interrupted, phases.asking + phases.receiving);
    const Duration behind = std::min(phases.disk_behind, phases.asking + phases.receiving);
    parts.push_back({SlowCause::kLink, phases.asking + phases.receiving - lost - behind});
    parts.push_back({SlowCause::kLostParents, lost});
    parts.push_back({SlowCause::kDisk, behind + phases.storing});
  }
  [[nodiscard]] static bool is_transfer(SlowCause cause) {
    return cause == SlowCause::kLink || cause == SlowCause::kLostParents || cause == SlowCause::kDisk;
  }

  /// What held up those that it feeds, too: chunks are passed on before the rest.
  [[nodiscard]] Parts until_received(const WorkerCourse& course) const {
    Parts parts;
    add_transfer(*course.phases, parts);
    add_waiting(course, parts);
    parts.push_back(before_begun(course));
    return parts;
  }
  [[nodiscard]] Parts all_parts(const WorkerCourse& course) const {
    Parts parts = until_received(course);
    parts.push_back({SlowCause::kApplying, course.phases->applying + course.phases->switching});
    parts.push_back(elsewhere(course));
    return parts;
  }

  /// The part that `id` had longest beyond what the others had of it. Nothing if it had hardly more of any.
  [[nodiscard]] std::optional<Part> excess(PeerId id, const Parts& parts) const {
    std::vector<Parts> others;
    for (const auto& [other, course] : record_.courses) {
      if (other != id && course.installed_at && course.phases) others.push_back(all_parts(course));
    }
    if (others.empty()) return std::nullopt;
    const Duration whole = *find(id)->installed_at - record_.started_at;
    std::optional<Part> found;
    Duration most{};
    for (const Part& part : parts) {
      const Duration more = lasts_of(parts, part.cause) - usual(others, part.cause);
      if (more <= std::max({kHopSlack, most, whole / (is_fault(part.cause) ? kShareOfFault : kShareOfExcess)}))
        continue;
      most = more;
      found = Part{part.cause, lasts_of(parts, part.cause)};
    }
    return found;
  }

  /// What the origin cost if the links kept to the plan: it made the version for longer than they were late.
  [[nodiscard]] std::optional<Part> made_late(PeerId id, const WorkerCourse& course) const {
    const auto had_all = had_all_at(id, course.payload);
    const auto made = record_.making_of(course.payload).ended_at;
    if (record_.predicted <= Duration::zero() || !had_all || course.joined_at || began_anew(course))
      return std::nullopt;
    const Duration took = *had_all - record_.started_at, late = took - record_.predicted;
    const Instant ready = std::max(made.value_or(record_.started_at), course.told_at.value_or(record_.started_at));
    const Duration making = std::min(*had_all, ready) - record_.started_at;
    if (late < took / kShareOfOrigin || 2 * making < late || making < took / kShareOfOrigin) return std::nullopt;
    return Part{SlowCause::kOrigin, making};
  }

  /// Why it was fed so slowly, if more is known of that than the rate.
  [[nodiscard]] SlowCause behind_transfer(const WorkerCourse& course, SlowCause cause) const {
    const InstallPhases& phases = *course.phases;
    const Duration lasts = phases.asking + phases.receiving;
    if (cause == SlowCause::kLink && course.gone > std::max(kHopSlack, lasts / kShareOfExcess))
      return SlowCause::kReconnected;
    if (cause == SlowCause::kLink && course.left_as_silent > 0) return SlowCause::kStalled;
    const bool was_moved = phases.parents_left > 0 || as_slow(phases) > 1;
    if (!course.unreached.empty() && was_moved && cause != SlowCause::kDisk) return SlowCause::kUnreachable;
    return cause;
  }

  [[nodiscard]] std::string describe(const Part& part, const WorkerCourse& course) const {
    const double s = to_seconds(part.lasts);
    switch (part.cause) {
      case SlowCause::kUnknown:
        return course.phases ? fmt::format("it does not say where {:.2f} s went", s)
                             : "it does not say where its time went";
      case SlowCause::kJoinedLate: return fmt::format("it joined {:.2f} s after the publication had begun", s);
      case SlowCause::kReconnected:
        if (course.gone > Duration::zero() && !began_anew(course))
          return fmt::format("it was gone for {:.2f} s", to_seconds(course.gone));
        return fmt::format("it was gone, and back {:.2f} s after it was told",
                           to_seconds(*course.rejoined_at - course.told_at.value_or(record_.started_at)));
      case SlowCause::kFailed: return fmt::format("it could not install it at first: {}", course.failure);
      case SlowCause::kVersionBefore: return fmt::format("it finished the version before first, for {:.2f} s", s);
      case SlowCause::kGaveUp: return fmt::format("it gave up another payload of the version, after {:.2f} s", s);
      case SlowCause::kOrigin: return origin_words(s, course.told_at.value_or(record_.started_at));
      case SlowCause::kLink: return link_words(*course.phases);
      case SlowCause::kLostParents:
        return fmt::format("it left {} of its parents, and was without chunks for {:.2f} s",
                           course.phases->parents_left, s);
      case SlowCause::kStalled:
        return fmt::format("it stood still: {} left it as silent", count_text(course.left_as_silent, "worker"));
      case SlowCause::kUnreachable:
        return fmt::format("it could not reach {}; {}", course.unreached, link_words(*course.phases));
      case SlowCause::kDisk:
        if (course.phases->fed_bytes == 0) return fmt::format("all was there already, and took {:.2f} s to read", s);
        return fmt::format("it waited {:.2f} s for its disk", s);
      case SlowCause::kApplying: return fmt::format("it took {:.2f} s to apply and install it", s);
      case SlowCause::kLeft:
        return fmt::format("it left {:.2f} s after the publication had begun, without the version", s);
      case SlowCause::kParent: break;
    }
    return "";
  }

  /// What the origin did for most of the time before `until`, or else that it took `seconds` to begin.
  [[nodiscard]] std::string origin_words(double seconds, Instant until) const {
    std::string words = fmt::format("the origin took {:.2f} s to begin to send it", seconds);
    Duration most = from_seconds(seconds / 2);
    const auto consider = [&](const PublicationRecord::Making& making, std::string_view what) {
      if (!making.began_at) return;
      const Duration within = std::min(making.ended_at.value_or(until), until) - *making.began_at;
      if (within < most) return;
      most = within;
      words =
          fmt::format("the origin took {:.2f} s to {}", to_seconds(making.ended_at ? making.lasted() : within), what);
    };
    consider(record_.taking_over, "take it over");
    for (const auto& [payload, making] : record_.made)
      consider(making, payload.is_patch() ? "encode its patch" : payload.is_packed() ? "pack it" : "hash it");
    return words;
  }

 private:
  /// Whether its phases began when it was back. A worker goes on while only its connection is gone.
  [[nodiscard]] static bool began_anew(const WorkerCourse& course) {
    const Duration phases = course.phases ? course.phases->total() : Duration::zero();
    return course.rejoined_at && course.installed_at && course.told_at &&
           phases <= *course.installed_at - *course.rejoined_at + kHopSlack;
  }

  [[nodiscard]] static double rate_of(const InstallPhases& phases) {
    const double seconds = to_seconds(phases.asking + phases.receiving);
    return seconds > 0 ? std::min(double(phases.bytes) / seconds, kRateMax) : 0;
  }

  /// How many that one fed at no higher rate, itself among them.
  [[nodiscard]] std::size_t as_slow(const InstallPhases& phases) const {
    const double rate = rate_of(phases);
    return static_cast<std::size_t>(std::ranges::count_if(record_.courses, [&](const auto& entry) {
      const std::optional<InstallPhases>& other = entry.second.phases;
      return other && other->fed_bytes > 0 && other->fed_by == phases.fed_by && rate_of(*other) <= kSameRate * rate;
    }));
  }

  [[nodiscard]] std::string link_words(const InstallPhases& phases) const {
    std::string words = fmt::format("its link brought {}/s from {}",
                                    format_bytes(static_cast<std::uint64_t>(rate_of(phases))), name_of(phases.fed_by));
    if (const std::size_t same = as_slow(phases); same > 1)
      words += fmt::format(", which fed {} no faster", count_text(same - 1, "other"));
    return words;
  }

  /// What most had no less of: the lower quartile, because one fault may have held up half of a fleet.
  [[nodiscard]] static Duration usual(const std::vector<Parts>& courses, SlowCause cause) {
    std::vector<Duration> lasted;
    lasted.reserve(courses.size());
    for (const Parts& parts : courses) lasted.push_back(lasts_of(parts, cause));
    const auto at = lasted.begin() + static_cast<std::ptrdiff_t>(lasted.size() / 4);
    std::ranges::nth_element(lasted, at);
    return *at;
  }

  const PublicationRecord& record_;
  std::string_view origin_name_;
};

SlowestWorker explain(const Courses& courses, PeerId last, const WorkerCourse& course) {
  const auto found = [&](const Part& part) { return SlowestWorker{last, part.cause, courses.describe(part, course)}; };
  if (!course.installed_at) return found({SlowCause::kLeft, courses.since_start(*course.left_at)});
  const Part before = courses.before_begun(course);
  if (!course.phases) return found(before.cause == SlowCause::kOrigin ? Part{} : before);
  const InstallPhases& phases = *course.phases;
  const Parts parts = courses.all_parts(course);
  const std::optional<Part> own = courses.excess(last, parts);
  if (own && !Courses::is_transfer(own->cause)) return found(*own);
  if (!own) {
    if (const auto origin = courses.made_late(last, course)) {
      return {last, origin->cause, courses.origin_words(to_seconds(origin->lasts), *course.installed_at)};
    }
    Parts whole = parts;
    whole.push_back({SlowCause::kLink, phases.asking + phases.receiving + phases.storing});
    if (const Part most = longest(whole); !Courses::is_transfer(most.cause)) return found(most);
  }
  const auto of_transfer = [&](PeerId id, const WorkerCourse& one, const Parts& its) {
    Part part = courses.excess(id, its).value_or(longest(its));
    if (Courses::is_transfer(part.cause)) part.cause = courses.behind_transfer(one, part.cause);
    return part;
  };
  const PeerId pacemaker = courses.pacemaker_of(last);
  if (pacemaker == last) {
    Parts transfer;
    Courses::add_transfer(phases, transfer);
    return found(of_transfer(last, course, transfer));
  }
  std::string why;
  if (pacemaker == kOriginId) {
    why = courses.origin_words(0, *course.installed_at);
    if (phases.fed_by == kOriginId) return {last, SlowCause::kOrigin, std::move(why)};
  } else {
    const WorkerCourse& other = *courses.find(pacemaker);
    why = fmt::format("{}: {}", other.name,
                      courses.describe(of_transfer(pacemaker, other, courses.until_received(other)), other));
  }
  const std::string behind = pacemaker == phases.fed_by || pacemaker == kOriginId
                                 ? std::string()
                                 : fmt::format(" (behind {})", courses.name_of(pacemaker));
  return {last, SlowCause::kParent,
          fmt::format("it waited for its parent {}{}; {}", courses.name_of(phases.fed_by), behind, why)};
}

}  // namespace

std::optional<SlowestWorker> slowest_worker(const PublicationRecord& record, std::string_view origin_name) {
  const auto awaited_until = [](const WorkerCourse& course) {
    return course.installed_at ? course.installed_at : course.left_at;
  };
  const auto last =
      std::ranges::max_element(record.courses, {}, [&](const auto& entry) { return awaited_until(entry.second); });
  if (last == record.courses.end() || !awaited_until(last->second)) return std::nullopt;
  return explain(Courses(record, origin_name), last->first, last->second);
}

}  // namespace weightcast
