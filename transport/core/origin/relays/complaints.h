#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/ids.h"
#include "transport/core/origin/members/peer_standing.h"
#include "transport/core/plan/plan.h"

namespace weightcast {

/// Remembers who complains of whom, over publications. A complaint may be a lie, so its weight depends on who else
/// says the same and on how often its author complains:
///
///   one child of a parent                   the two are kept apart: no plan has that parent feed that child; and
///                                           both are in dispute: plans place them last
///   kWitnessesNeeded children of a parent   the parent is convicted
///   a child of two parents in one           the child is the suspect, unless others complain of them, too
///   publication, or with no voice left
///
/// A publication clears who took part in it and had no complaint in it, of or by itself: what was said of it, or by it,
/// in earlier ones does not put it in dispute any more. Damage is not cleared so. A complaint that is cleared still
/// keeps the two apart and is a witness's word if a second child complains: else a relay could do wrong every other
/// time.
///
/// A member has a voice for kVoiceMax complaints and regains one in kRemembered publications. So members who conspire
/// can have an honest relay convicted, but not often: k of them at most 3k/2 times at once, and then k/2 times in
/// kRemembered publications.
/// Pure. Owned by the FaultAttribution. Invariant: a member has at most kVoiceMax + 1 complaints that are remembered.
class Complaints {
 public:
  static constexpr std::uint32_t kWitnessesNeeded = 2;
  static constexpr std::uint32_t kVoiceMax = 3;
  /// Publications for which a complaint counts and keeps two members apart.
  static constexpr std::uint32_t kRemembered = 8;

  struct Complaint {
    PeerId parent{};
    PeerFault fault{};
    std::uint32_t age = 0;  ///< publications
    bool discredited = false;
    bool parent_cleared = false;
    bool child_cleared = false;
  };
  /// A member that complains.
  struct Author {
    std::vector<Complaint> complaints;
    std::uint32_t voice = kVoiceMax;
    std::uint32_t since_regained = 0;  ///< publications
  };

  enum class Weight : std::uint8_t {
    kRepeated,  ///< it is known
    kCounts,
    kNoVoice,  ///< its author has complained too often; it changes nothing
  };
  Weight handle_complaint(PeerId child, PeerId parent, PeerFault fault);
  /// The origin has seen by itself that `parent` is gone: who said so has its voice back.
  void handle_lost(PeerId parent);
  /// What `child` said counts against nobody any more. It stays apart from those of whom it complained.
  void discredit(PeerId child);
  /// `took_part`: who was to have the version and has it.
  void handle_publication_end(const std::set<PeerId>& took_part = {});

  /// What outlives the process, and what it was: values out of range are brought into it, as they may come from a file.
  [[nodiscard]] Author record(PeerId child) const;
  void restore(PeerId child, Author author);
  /// Complaints so far, discredited ones counted twice.
  [[nodiscard]] std::uint64_t made_count() const { return made_; }

  /// Pairs of parent and child, for plans.
  [[nodiscard]] std::vector<ApartPair> apart() const;
  /// Children whose complaints of `parent` count.
  [[nodiscard]] std::vector<PeerId> witnesses(PeerId parent) const;
  /// How many of them are not cleared: what stands against the parent.
  [[nodiscard]] std::size_t count_of(PeerId parent) const;
  /// Of how many `child` complains, for which it is not cleared.
  [[nodiscard]] std::size_t count_by(PeerId child) const;
  /// Whether a complaint that counts is about that member, or any complaint is from it, and it is not cleared.
  [[nodiscard]] bool in_dispute(PeerId member) const;
  [[nodiscard]] bool convicted(PeerId parent) const { return witnesses(parent).size() >= kWitnessesNeeded; }
  /// Whether a child says in this publication that it closed the connection.
  [[nodiscard]] bool closed_on_a_child(PeerId parent) const;
  /// Whether enough of them say that it sends damaged bytes.
  [[nodiscard]] bool convicted_of_corruption(PeerId parent) const;
  /// How many parents `child` has complained of in this publication, that nobody else complains of.
  [[nodiscard]] std::uint32_t unshared(PeerId child) const;

 private:
  std::map<PeerId, Author> authors_;
  std::uint64_t made_ = 0;
};

}  // namespace weightcast
