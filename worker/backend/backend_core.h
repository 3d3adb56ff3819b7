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
  /// BackendProtocol::adapters_max(): 0, or 2 or more; on_switch is then kWait or kRestart.
  std::size_t adapters_max = 0;
};

/// What the caller of a BackendCore does next.
struct BackendAction {
  enum class Kind : std::uint8_t {
    kSend,     ///< send `request`; then handle_answer()
    kCancel,   ///< end the call of `request`, whose answer is of no use; handle_answer() all the same
    kInstall,  ///< BackendProtocol::install() or load_adapter() of `version`; then handle_installed()
    kCheck,    ///< BackendProtocol::installed() or has_adapter() of last_installed(); then handle_checked()
    kRestore,  ///< BackendProtocol::restore(); then handle_restored()
    kUnload,   ///< BackendProtocol::unload_adapter() of `version`; then handle_unloaded()
  };
  Kind kind = {};
  RequestId request = {};
  VersionName version = {};  ///< kSend: the adapter that answers, with adapters_max
  bool is_anew = false;      ///< kInstall: the server's weights are not known; it may have been started anew

  bool operator==(const BackendAction&) const = default;
};

/// Decides what a server that generates for us is asked, and what of its answers counts. Pure: no I/O, and its caller
/// passes the time. At most one of kInstall, kCheck, kRestore and kUnload is under way.
///
/// The server's weights are known from an install that succeeded until an install begins, or the server is found with
/// another version: it was started anew, or somebody else told it. Requests go out only while they are known. What a
/// server that does not say versions has answered counts once a check, begun after the answer came, finds the
/// version that was installed: a server that was started anew has forgotten it.
/// An install that the server refuses is followed by one of the version before, as nobody knows what it left; with no
/// version before, by a kRestore.
///
/// With adapters_max versions lie side by side. Each request names its own, which all of its tokens have. An install
/// waits for no answer and changes none: those under way end under theirs (kWait) or begin anew under the new one
/// (kRestart). A version that no call names any more is unloaded. Where adapters_max are in use, an install waits
/// until one is free, for at most drain_time_max: then the answers of the oldest one begin anew.
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
  void handle_unloaded(Instant now, VersionName name, Status outcome);
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
  /// With adapters_max: the server may have it, and calls under way may name it.
  [[nodiscard]] bool is_loaded(VersionName name) const { return loaded_.contains(name); }
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
  void cancel_call(RequestId id, Request& request);
  /// With adapters_max: the calls under `name` begin anew.
  void cancel_calls_of(VersionName name);
  /// With adapters_max: the version that the call named, which has ended.
  VersionName take_call(RequestId id);
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
  [[nodiscard]] std::optional<BackendAction> next_adapter_control(Instant now);
  [[nodiscard]] BackendAction begin_install(VersionName name);
  [[nodiscard]] BackendAction begin_check();

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
  std::set<Version> recent_;                           // installed, and tokens of answers under way may have them
  std::map<VersionName, std::set<RequestId>> loaded_;  // with adapters_max: at the server, and the calls that name it
  bool is_suspect_ = false;                            // something failed since the server was heard of
  bool is_in_control_ = false;                         // one of kInstall, kCheck, kRestore and kUnload is under way
  std::optional<Version> installing_;                  // the kInstall that is under way
  bool is_first_install_ = false;                      // the same, of a version that is in loaded_ for its sake alone
  bool was_known_ = false;                             // the server's weights, before the install that is under way
  bool is_spoilt_ = false;                             // by an install that failed, with no version before it
  std::uint64_t checked_to_ = 0;                       // arrivals before the check that is under way
  Instant drain_until_{};
  Instant retry_at_{};
  std::uint32_t failures_ = 0;  // in a row

  std::deque<BackendAction> cancels_;
  std::vector<EngineEvent> events_;
  std::deque<std::string> lines_;
  std::string said_;
};

}  // namespace weightcast
