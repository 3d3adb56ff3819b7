#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "worker/backend/backend_protocol.h"
#include "worker/engine/answer_source.h"
#include "worker/engine/version_policy.h"

namespace weightcast {

struct BackendCoreOptions {
  std::size_t running_max = 64;     ///< requests that the server has at once
  std::size_t waiting_max = 65536;  ///< requests that wait behind them
  std::uint32_t attempts_max = 5;   ///< of a request that the server loses, or breaks on
  BackendSwitch on_switch = BackendSwitch::kWait;
  Duration drain_time_max = std::chrono::minutes(10);  ///< kWait: what takes longer begins anew
  bool says_versions = false;                          ///< BackendProtocol::says_versions()
  bool installs_itself = false;                        ///< BackendProtocol::installs_itself()
};

/// What the caller of a BackendCore does next.
struct BackendAction {
  enum class Kind : std::uint8_t {
    kSend,     ///< send `request`; then handle_answer()
    kCancel,   ///< end the call of `request`, whose answer is of no use; handle_answer() all the same
    kInstall,  ///< BackendProtocol::install() of `version`; then handle_installed()
    kCheck,    ///< BackendProtocol::installed(); then handle_checked()
    kRestore,  ///< BackendProtocol::restore(); then handle_restored()
  };
  Kind kind = {};
  RequestId request = {};
  VersionName version = {};
  bool is_anew = false;  ///< kInstall: the server's weights are not known; it may have been started anew

  bool operator==(const BackendAction&) const = default;
};

/// Decides what a server that generates for us is asked, and what of its answers counts. Pure: no I/O, and its caller
/// passes the time. At most one of kInstall, kCheck and kRestore is under way.
///
/// The server's weights are known from an install that succeeded until an install begins, or the server is found with
/// another version: it was started anew, or somebody else told it. Requests go out only while they are known. What a
/// server that does not say versions has answered counts once a check, begun after the answer came, finds the
/// version that was installed: a server that was started anew has forgotten it.
/// An install that the server refuses is followed by one of the version before, as nobody knows what it left; with no
/// version before, by a kRestore.
/// Invariant: a token that comes out has the version that sampled it; each request that add() took ends with one event.
class BackendCore {
 public:
  explicit BackendCore(const BackendCoreOptions& options) : options_(options) {}

  /// Errors: kInvalidArgument (an empty prompt, or no tokens wanted), kBusy (waiting_max).
  [[nodiscard]] Result<RequestId> add(EngineRequest request);
  /// Errors: kNotFound (it has ended, or never was).
  [[nodiscard]] Status abort(RequestId id);
  /// The request that a kSend names; null once it was aborted.
  [[nodiscard]] const EngineRequest* request(RequestId id) const;
  void handle_answer(Instant now, RequestId id, Result<BackendAnswer> answer);

  /// The daemon has this version.
  void handle_published(VersionName name) { policy_.handle_installed(name); }
  /// How the install of `name` ended: the version that the server has now.
  void handle_installed(Instant now, VersionName name, Result<Version> outcome);
  /// It was not begun, since its files cannot be had or are of another model: the server has what it had.
  void handle_skipped(Instant now, VersionName name, const Error& why);
  /// It was not begun, since the server does not answer, or was started otherwise than it has to be.
  void handle_unready(Instant now, VersionName name, const Error& why);
  void handle_restored(Instant now, Status outcome);
  /// What the server says it has.
  void handle_checked(Instant now, Result<Version> outcome);

  /// To be called every few milliseconds, and after each input until there is none.
  [[nodiscard]] std::optional<BackendAction> poll_action(Instant now);
  [[nodiscard]] std::vector<EngineEvent> take_events();
  /// A line for a person, once for each trouble and its end.
  [[nodiscard]] std::optional<std::string> poll_line();

  /// What requests are answered under; absent while that is not known.
  [[nodiscard]] std::optional<Version> version() const;
  /// The version that was installed last, whether the server still has it or not.
  [[nodiscard]] std::optional<VersionName> last_installed() const { return last_; }
  [[nodiscard]] bool has_events() const { return !events_.empty(); }
  /// Requests that have not ended.
  [[nodiscard]] std::size_t open() const { return requests_.size(); }

 private:
  enum class Phase : std::uint8_t {
    kUnknown,   // the server's weights
    kServing,   // under last_
    kDraining,  // the same, and another version is to be installed
  };
  enum class Where : std::uint8_t {
    kWaiting,
    kSent,
    kUnconfirmed,  // answered, by a server that does not say versions
    kEarly,        // answered under installing_, of which nobody knows yet how it went
  };
  struct Request {
    EngineRequest request;
    Where where = Where::kWaiting;
    bool is_cancelled = false;  // begins anew when its call has ended
    std::uint32_t attempts = 0;
    std::uint64_t arrival = 0;  // kUnconfirmed: its place among answers
    BackendAnswer answer;       // kUnconfirmed, kEarly
  };
  using Requests = std::map<RequestId, Request>;

  void emit(Requests::iterator request, EngineEvent event);
  void accept(Requests::iterator request, BackendAnswer answer);
  void fail_request(Requests::iterator request, std::string why);
  void wait_again(Requests::iterator request);
  /// The same, unless it was tried too often for `why`.
  void try_again(Requests::iterator request, const std::string& why);
  void cancel_sent();
  [[nodiscard]] Duration backoff() const;
  void note_trouble(Instant now, const std::string& why);
  void note_well();
  /// Answers that came under installing_ count, or begin anew.
  void settle_early(bool is_installed);
  /// The server has other weights than last_: nothing that has not come out counts.
  void lose_weights(Instant now, const std::string& why);
  [[nodiscard]] bool are_known(const std::vector<EngineToken>& tokens) const;
  [[nodiscard]] std::optional<VersionName> to_install() const;
  [[nodiscard]] std::optional<BackendAction> next_control(Instant now);

  const BackendCoreOptions options_;
  Requests requests_;
  std::deque<RequestId> waiting_;
  std::size_t sent_ = 0;  // the server has
  std::size_t unconfirmed_ = 0;
  std::uint64_t next_id_ = 1;
  std::uint64_t arrivals_ = 0;

  VersionPolicy policy_;
  Phase phase_ = Phase::kUnknown;
  std::optional<VersionName> last_;
  std::set<Version> recent_;           // installed, and tokens of answers under way may have them
  bool is_suspect_ = false;            // something failed since the server was heard of
  bool is_in_control_ = false;         // kInstall or kCheck is under way
  std::optional<Version> installing_;  // the kInstall that is under way
  bool was_known_ = false;             // the server's weights, before the install that is under way
  bool is_spoilt_ = false;             // by an install that failed, with no version before it
  std::uint64_t checked_to_ = 0;       // arrivals before the check that is under way
  Instant drain_until_{};
  Instant retry_at_{};
  std::uint32_t failures_ = 0;  // in a row

  std::deque<BackendAction> cancels_;
  std::vector<EngineEvent> events_;
  std::deque<std::string> lines_;
  std::string said_;
};

}  // namespace weightcast
