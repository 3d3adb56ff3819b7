#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/time.h"
#include "transport/core/install_phases.h"
#include "transport/core/manifest/manifest.h"
#include "transport/core/origin/history/broadcast_times.h"
#include "transport/core/origin/members/membership.h"
#include "transport/core/plan/plan.h"

namespace weightcast {

/// One worker's way to one version, by the origin's clock. Only `phases` and `taken_after` are the worker's own word.
struct WorkerCourse {
  std::string name;
  PayloadId payload{};                 ///< that it was told of last; of kNoVersion: none
  std::optional<Instant> joined_at;    ///< for the first time, if the publication had begun before
  std::optional<Instant> rejoined_at;  ///< the last time, after it had been told of the version
  std::optional<Instant> told_at;      ///< of a payload of the version, for the first time
  std::optional<Instant> installed_at;
  std::optional<Instant> left_at;    ///< without the version: it was lost or released, and has not come back
  Duration gone{};                   ///< lost, and back since: in all
  std::uint32_t left_as_silent = 0;  ///< so often whom it fed left it, because it said nothing
  std::string unreached;             ///< whom it cannot dial, where, and why; "": nobody. Set when the publication ends
  std::optional<InstallPhases> phases;
  std::optional<Duration> taken_after;  ///< from the switch until an engine there took it; the worker's word, too
  std::string failure;                  ///< why it could not install the version, the last time; "": it could
};

/// What the origin remembers of one publication.
struct PublicationRecord {
  enum class End : std::uint8_t { kUnderWay, kComplete, kSuperseded, kGivenUp };
  /// When the origin began to make a payload, and had it whole.
  struct Making {
    std::optional<Instant> began_at, ended_at;

    [[nodiscard]] Duration lasted() const { return began_at && ended_at ? *ended_at - *began_at : Duration::zero(); }
  };

  Version version{};
  UnixMillis published_unix_ms = 0;
  Instant started_at{};
  Making taking_over;                ///< of a version that was published by its full payload
  std::map<PayloadId, Making> made;  ///< the other payloads, if they were begun before the end
  std::uint64_t snapshot_bytes = 0;
  PayloadKind kind = PayloadKind::kFull;  ///< of what most workers got
  std::uint64_t payload_bytes = 0;        ///< of that
  std::uint64_t sent_bytes = 0;           ///< by the origin, of all its payloads, until the end
  Topology topology = Topology::kStar;
  Duration predicted{};  ///< T_bcast(1.0); zero: no plan had it
  BroadcastTimes::Times times;
  std::uint32_t workers = 0;    ///< that count
  std::uint32_t installed = 0;  ///< of those
  std::uint32_t taken = 0;      ///< workers whose engine has taken it
  End end = End::kUnderWay;
  std::optional<Instant> ended_at;
  Version superseded_by{};
  std::optional<PeerId> slowest_id;  ///< the worker that had it last, or is furthest from it
  std::string slowest;               ///< its name
  std::string cause;                 ///< a word of SlowCause; "" while it is under way
  std::string why;                   ///< in words: what kept that worker, and why the version was given up
  std::map<PeerId, WorkerCourse> courses;

  [[nodiscard]] Making making_of(PayloadId payload) const {
    if (const auto found = made.find(payload); found != made.end()) return found->second;
    return payload.is_full() ? taking_over : Making();
  }
  /// Of the full payload of a version that was published by its patch.
  [[nodiscard]] Making hashing() const {
    const auto found = made.find(version);
    return found == made.end() ? Making() : found->second;
  }
  [[nodiscard]] Making packing() const { return making_of(packed_of(version)); }
  /// Of the patch from the newest base, by which most workers come.
  [[nodiscard]] Making encoding() const {
    const auto found = std::find_if(made.rbegin(), made.rend(), [](const auto& one) { return one.first.is_patch(); });
    return found == made.rend() ? Making() : found->second;
  }
};
constexpr Words<4> words_of(PublicationRecord::End) { return {"under way", "complete", "superseded", "given up"}; }

/// The last publications of an origin, with each worker's way to each. In memory alone: it ends with the process. Pure.
/// Owned by a Publications, which tells it what happens. Invariants: at most kVersionsMax versions, of which the oldest
/// that has ended goes first, and the newest that was not given up stays; at most kCoursesMax ways of workers, of the
/// newest versions; what has ended changes only in what becomes of workers, and, if it is superseded, in how many have
/// it and since when.
class PublicationHistory {
 public:
  static constexpr std::size_t kVersionsMax = 1000;
  static constexpr std::size_t kCoursesMax = 32'768;

  /// A version is being taken over. One of that number that was given up is forgotten.
  void handle_begun(Instant now, const Manifest& manifest);
  /// It is whole here. Its time counts from `started_at`.
  void handle_published(Instant now, Instant started_at, const Manifest& manifest);
  /// Of a version that is superseded.
  void handle_times(Version version, const BroadcastTimes::Times& times);
  /// Somebody needs the version, which may be one from before this process.
  void handle_wanted(Instant now, const Manifest& manifest);
  /// The origin makes a payload of the version, and has made it, or given up.
  void handle_making(Instant now, PayloadId payload);
  void handle_made(Instant now, PayloadId payload);

  void handle_joined(Instant now, const Member& member);
  void handle_told(Instant now, const Member& member, PayloadId payload);
  void handle_failed(const Member& member, Version version, std::string_view why);
  /// Whom it fed has left it, because nothing came.
  void handle_silent(const Member& member, Version version);
  /// It is lost or released.
  void handle_left(Instant now, const Member& member);
  /// `before`: what it had. The first word of each kind counts; phases may follow.
  void handle_installed(Instant now, const Member& member, Version before, Version version,
                        const std::optional<InstallPhases>& phases);
  /// An engine there has taken the version, `after` the switch. The first word counts.
  void handle_taken(const Member& member, Version version, Duration after);

  /// Null if it is not known.
  [[nodiscard]] PublicationRecord* find(Version version);
  [[nodiscard]] const std::map<Version, PublicationRecord>& all() const { return records_; }

 private:
  using Records = std::map<Version, PublicationRecord>;

  /// Null if the version is not known, or nothing more is kept of its workers.
  [[nodiscard]] WorkerCourse* course_of(const Member& member, Version version);
  PublicationRecord& add(Instant now, Version version);
  /// Which is forgotten for another one. There is one.
  Records::iterator least_needed();
  void erase(Records::iterator record);

  Records records_;
  std::size_t courses_ = 0;
};

}  // namespace weightcast
