#include "transport/core/origin/history/slowest_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/units.h"

namespace weightcast {
namespace {

// What a worker says may come to any rate, and is shown as a whole number.
constexpr double kRateMax = 1e18;

struct Part {
  SlowCause cause{};
  Duration lasts{};
};

Part longest(std::initializer_list<Part> parts) {
  return *std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.lasts < b.lasts; });
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
      if (!here || !above || *here - *above > std::max(kHopSlack, (phases.asking + phases.receiving) / 10)) break;
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

  [[nodiscard]] static Part waiting(const WorkerCourse& course) {
    const InstallPhases& phases = *course.phases;
    if (!course.failure.empty()) return {SlowCause::kFailed, phases.waiting};
    return longest(
        {{SlowCause::kVersionBefore, phases.waiting - phases.given_up}, {SlowCause::kGaveUp, phases.given_up}});
  }

  /// Since it was told, and in no phase: its word came late, or it is not right.
  [[nodiscard]] static Part elsewhere(const WorkerCourse& course) {
    if (!course.told_at || !course.installed_at) return {};
    Duration lasts = *course.installed_at - *course.told_at - course.phases->total();
    if (began_anew(course)) lasts -= *course.rejoined_at - *course.told_at;
    return {course.rejoined_at ? SlowCause::kReconnected : SlowCause::kUnknown, lasts};
  }

  /// What receiving was made of.
  [[nodiscard]] static Part transfer(const InstallPhases& phases) {
    if (phases.fed_bytes == 0) return {SlowCause::kDisk, phases.asking + phases.receiving + phases.storing};
    const Duration lost = std::min(phases.interrupted, phases.asking + phases.receiving);
    const Duration behind = std::min(phases.disk_behind, phases.asking + phases.receiving);
    const Duration link = phases.asking + phases.receiving - lost - behind;
    return longest(
        {{SlowCause::kLink, link}, {SlowCause::kLostParents, lost}, {SlowCause::kDisk, behind + phases.storing}});
  }

  [[nodiscard]] std::string describe(const Part& part, const WorkerCourse& course) const {
    const double s = to_seconds(part.lasts);
    switch (part.cause) {
      case SlowCause::kUnknown:
        return course.phases ? fmt::format("it does not say where {:.2f} s went", s)
                             : "it does not say where its time went";
      case SlowCause::kJoinedLate: return fmt::format("it joined {:.2f} s after the publication had begun", s);
      case SlowCause::kReconnected:
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

  [[nodiscard]] std::string link_words(const InstallPhases& phases) const {
    const double rate = rate_of(phases);
    const auto as_slow = std::ranges::count_if(record_.courses, [&](const auto& entry) {
      const std::optional<InstallPhases>& other = entry.second.phases;
      return other && other->fed_bytes > 0 && other->fed_by == phases.fed_by && rate_of(*other) <= 1.25 * rate;
    });
    std::string words = fmt::format("its link brought {}/s from {}", format_bytes(static_cast<std::uint64_t>(rate)),
                                    name_of(phases.fed_by));
    if (as_slow > 1) words += fmt::format(", which fed {} others no faster", as_slow - 1);
    return words;
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
  constexpr SlowCause kTransfer = SlowCause::kLink;
  const Part most = longest({{kTransfer, phases.asking + phases.receiving + phases.storing},
                             {SlowCause::kApplying, phases.applying + phases.switching},
                             Courses::waiting(course),
                             Courses::elsewhere(course),
                             before});
  if (most.cause != kTransfer) return found(most);
  const PeerId pacemaker = courses.pacemaker_of(last);
  if (pacemaker == last) return found(Courses::transfer(phases));
  std::string why;
  if (pacemaker == kOriginId) {
    why = courses.origin_words(0, *course.installed_at);
    if (phases.fed_by == kOriginId) return {last, SlowCause::kOrigin, std::move(why)};
  } else {
    const WorkerCourse& other = *courses.find(pacemaker);
    // What follows after receiving held nobody up: chunks were passed on before.
    const Part theirs =
        longest({Courses::transfer(*other.phases), Courses::waiting(other), courses.before_begun(other)});
    why = fmt::format("{}: {}", other.name, courses.describe(theirs, other));
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
