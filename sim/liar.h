#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/settings/words.h"
#include "base/time.h"
#include "sim/event_queue.h"
#include "transport/core/worker/worker_core.h"

namespace weightcast::sim {

/// What a hostile member does beside being a worker like any other.
enum class Lie : std::uint8_t {
  kCorrupts,      ///< damages chunks that it forwards
  kReplays,       ///< sends chunks, digests and announcements of an older version instead of the new one's
  kWithholds,     ///< forwards some of the chunks, or late, and always says UpToDate
  kUnderstates,   ///< names fewer chunks than it has, and says that it starves
  kOverstates,    ///< says that it has all, and that it has installed it
  kBlames,        ///< complains of relays that have done nothing, and says that it cannot dial anybody
  kImpersonates,  ///< joins and says hello under the names of others
  kFloods,        ///< joins, subscribes, complains, reports and takes payloads as often as it can
};
constexpr Words<8> words_of(Lie) {
  return {"corrupts", "replays", "withholds", "understates", "overstates", "blames", "impersonates", "floods"};
}

/// One hostile member. Its keys are its own: it is a member, and cannot prove to be another one.
struct LiarOptions {
  NodeIndex node = 1;
  std::set<Lie> lies;
  double share = 1;                 ///< of the chunks that it damages, replays or withholds
  std::uint32_t stripes_of = 0;     ///< withholds the chunks whose index is 0 modulo this, too; 0: no such
  Duration pace{};                  ///< between two chunks that it forwards to one child; 0: as fast as it can
  std::uint32_t chunks_before = 0;  ///< forwards so many chunks of each payload like an honest member
  std::uint32_t tail_chunks = 0;    ///< withholds so many of the last chunks of each payload; 0: no such
  std::uint32_t accomplice_of = 0;  ///< blames only this node; 0: anybody
};

/// For people who read what a violation says.
[[nodiscard]] std::string to_text(const LiarOptions& liar);

/// What a liar did so plainly that the origin has to name it: since when, of each.
struct LiarEvidence {
  std::map<NodeIndex, Instant> withheld_from;  ///< children for which it held chunks back for kWithheldFor on end
  std::optional<Instant> accused;              ///< its own parent, again and again
  std::optional<Instant> impersonated;         ///< another member, at the origin
  std::optional<Instant> flooded;              ///< the origin, beyond what one connection may send
};

/// A worker's core with a liar around it: what the core says is changed on its way out, and the liar adds to it.
/// Called by the Simulation in place of the core.
class LyingWorker final : public WorkerCore {
 public:
  LyingWorker(const WorkerConfig& config, LiarOptions options, std::uint32_t workers, std::uint64_t seed)
      : WorkerCore(config), options_(std::move(options)), name_(config.name), workers_(workers), random_(seed) {
    origin_host_ = config.origin_host;
    origin_port_ = config.origin_port;
  }

  [[nodiscard]] const LiarEvidence& evidence() const { return evidence_; }
  /// Whether the chunk of the last action is to arrive damaged.
  [[nodiscard]] bool damages_last() const { return damages_last_; }

  void handle_accepted(Instant now, ConnId conn, std::string_view host,
                       const std::optional<PeerIdentity>& peer = std::nullopt) override;
  void handle_connected(Instant now, ConnId conn, const std::optional<PeerIdentity>& peer = std::nullopt) override;
  void handle_closed(Instant now, ConnId conn, const Error& why) override;
  void handle_message(Instant now, ConnId conn, const wire::Message& message) override;
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override;
  void handle_timeout(Instant now) override;
  [[nodiscard]] std::optional<Action> poll_action() override;
  [[nodiscard]] std::optional<Instant> poll_deadline() const override;

 private:
  struct Asked {
    ConnId conn{};
    PayloadId payload{};
    std::uint32_t stripe = 0;
    bool operator==(const Asked&) const = default;
  };
  struct Held {
    Instant due{};
    action::SendChunk chunk;
  };

  [[nodiscard]] bool does(Lie lie) const { return options_.lies.contains(lie); }
  /// What becomes of one action of the core; nothing: it is not done, or later.
  [[nodiscard]] std::optional<Action> twist(Action action);
  [[nodiscard]] std::optional<Action> twist_chunk(action::SendChunk send);
  void twist_message(wire::Message& message);
  void act();
  void say(ConnId conn, wire::Message message) { extra_.push(action::Send{conn, std::move(message)}); }
  void complain(wire::FaultKind kind, bool stays);
  /// It has not sent a chunk that it could have sent to that child.
  void note_withheld(ConnId conn, PayloadId payload);
  void note_withheld_for_long();
  /// Says it on the connection to the origin.
  void say_to_origin(wire::Message message);
  void flood();
  /// Says to the origin that it cannot dial one after the other.
  void deny_reach();
  /// Some held payload that is older, to replay; of kNoVersion if there is none.
  [[nodiscard]] PayloadId older_than(PayloadId payload) const;
  [[nodiscard]] std::string name_of_another();

  const LiarOptions options_;
  const std::string name_;
  std::string origin_host_;
  std::uint16_t origin_port_ = 0;
  const std::uint32_t workers_;
  Random random_;
  Instant now_{};
  std::optional<Instant> act_at_;
  ActionQueue extra_;
  bool damages_last_ = false;
  std::set<ConnId> own_conns_;     // that the liar dials beside its core
  std::set<ConnId> at_origin_;     // of these
  std::set<ConnId> greedy_conns_;  // of these: it says hello there, and subscribes again and again
  std::vector<Asked> asked_;       // by children
  std::map<ConnId, Instant> sent_at_;
  std::map<std::pair<ConnId, PayloadId>, std::uint32_t> sent_;
  std::deque<Held> held_;  // chunks that go out late
  ConnId origin_conn_{};
  std::uint32_t said_to_origin_ = 0;  // on this connection, beside the core
  std::uint32_t accusations_ = 0;
  PayloadId called_slow_in_;
  std::uint32_t denied_ = 0;
  PayloadId starves_of_{};  // by its word, since then
  Instant starving_since_{};
  std::uint32_t starvation_words_ = 0;
  Instant joined_at_{};
  std::map<ConnId, NodeIndex> children_;
  std::map<ConnId, std::pair<PayloadId, Instant>> withheld_since_;  // no chunk has gone to that child since
  LiarEvidence evidence_;
  wire::Assignment assignment_;               // the last one
  std::optional<wire::Announce> announced_;   // the one before the last
  std::optional<wire::Announce> announcing_;  // the last one
};

}  // namespace weightcast::sim
