#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.h"
#include "transport/core/action.h"
#include "transport/core/assignment.h"
#include "transport/core/edge/links.h"
#include "transport/core/worker/origin_link.h"

namespace weightcast {

/// What this worker tells its origin of dials of other workers: of those that the origin has asked for, and of its own
/// that failed. A dial that takes longer than Links::dial_patience() counts as failed until it is made. Each change is
/// said once, and logged at the cost of the one that was dialled. Pure. Owned by a WorkerCore. Invariant: unreached()
/// has those of whom the last thing that was said is that they cannot be reached.
class PeerDials {
 public:
  struct Unreached {
    NodeAddress peer;
    std::string why;  ///< in a few words: "timed out"
  };

  /// All outlive it.
  PeerDials(ConnIds& ids, OriginLink& origin, ActionQueue& actions) : ids_(ids), origin_(origin), actions_(actions) {}

  /// The numbers of workers are those of another connection from now on, and the origin asks anew.
  void handle_joined() {
    unreached_.clear();
    undialled_.clear();
  }
  /// The origin asks for a dial, which counts as failed after `patience`.
  void handle_probe(Instant now, const wire::Probe& probe, Duration patience);
  [[nodiscard]] bool is_probe(ConnId conn) const { return probes_.contains(conn); }
  /// Whom a probe is to reach; "" where the origin does not say.
  [[nodiscard]] std::string name_of(ConnId conn) const;
  void handle_probe_made(ConnId conn);
  void handle_probe_failed(ConnId conn, const Error& why);

  /// The same of a dial of this worker's own.
  void handle_made(PeerId peer);
  void handle_failed(const NodeAddress& peer, const Error& why);
  /// It takes longer than Links::dial_patience().
  void handle_overdue(const NodeAddress& peer);

  /// The origin says who cannot dial this worker. It is logged once.
  void handle_undialled(std::string_view who);

  void handle_timeout(Instant now);
  [[nodiscard]] std::optional<Instant> poll_deadline() const;

  [[nodiscard]] const std::map<PeerId, Unreached>& unreached() const { return unreached_; }
  /// Who cannot dial this worker, and what to do; "": nobody that has tried.
  [[nodiscard]] const std::string& undialled() const { return undialled_; }

 private:
  struct Probe {
    NodeAddress peer;
    std::optional<Instant> due;  // then it counts as failed; absent once that was said
  };

  void note_failed(const NodeAddress& peer, std::string why, bool was_asked);
  void send(const NodeAddress& peer, bool reached, const std::string& why);

  ConnIds& ids_;
  OriginLink& origin_;
  ActionQueue& actions_;
  std::map<ConnId, Probe> probes_;
  std::map<PeerId, Unreached> unreached_;
  std::string undialled_;
};

}  // namespace weightcast
