#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/settings/words.h"
#include "transport/core/origin/history/publication_history.h"

namespace weightcast {

/// What kept a worker longest.
enum class SlowCause : std::uint8_t {
  kUnknown,        ///< it does not say where its time went: an older release, or its word is not to be taken
  kJoinedLate,     ///< it joined when the publication had begun
  kReconnected,    ///< its process or its connection was gone meanwhile
  kFailed,         ///< it could not install the version at first
  kVersionBefore,  ///< it finished that first
  kGaveUp,         ///< it gave up another payload of the version
  kOrigin,         ///< the origin was still taking over, encoding or packing
  kParent,         ///< whoever fed it had hardly more than it
  kLink,           ///< its link, or that of whoever fed it
  kLostParents,    ///< it left parents, and found others
  kDisk,           ///< its disk
  kApplying,       ///< checking, decoding, switching
  kLeft,           ///< it was lost, or released, and the others had the version before that
  kUnreachable,    ///< it could not dial whom it was to receive from
  kStalled,        ///< it stood still, and those that it fed left it
};
constexpr Words<15> words_of(SlowCause) {
  return {"unknown", "joined late", "reconnected", "failed before", "version before",
          "gave up", "origin",      "parent",      "link",          "lost parents",
          "disk",    "applying",    "left",        "unreachable",   "stalled"};
}

struct SlowestWorker {
  PeerId id{};
  SlowCause cause = SlowCause::kUnknown;
  std::string why;  ///< the cause, in words
};

/// The worker that installed the version last, or that left without it later than that, and why. Nothing if there is
/// none.
///
/// The cause is the phase, or what is in none of them, that it had longest beyond what others had of it. If it had
/// hardly more of any, it is what the origin took to make the version, where the links kept to the plan, and else the
/// longest phase. If that is receiving, it is looked for at whoever held it up. A worker that has the last chunk hardly
/// later than who fed it was held up by that one, and so on up to the origin: chunks are forwarded as they come, so the
/// slowest edge of a chain sets the pace of all below. "Hardly later" is a tenth of the time that it received for, or
/// kHopSlack. Workers are taken at their word, and a liar is only ever shown with its own figures, or taken for the one
/// to wait for.
[[nodiscard]] std::optional<SlowestWorker> slowest_worker(const PublicationRecord& record,
                                                          std::string_view origin_name);

inline constexpr Duration kHopSlack = std::chrono::milliseconds(20);

}  // namespace weightcast
