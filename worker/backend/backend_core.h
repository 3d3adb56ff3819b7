#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
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
  bool is_told = false;             ///< BackendProtocol::is_told()
  /// is_told: answers under way when a version comes end first; what takes longer begins anew.
  Duration drain_time_max = std::chrono::minutes(10);
};

/// What the caller of a BackendCore does next.
struct BackendAction {
  enum class Kind : std::uint8_t {
    kSend,     ///< send `request`; then handle_answer()
    kCancel,   ///< end the call of `request`, whose answer is of no use; handle_answer() all the same
    kAsk,      ///< BackendProtocol::installed(), with is_anew after examine(); then handle_asked()
    kInstall,  ///< is_told: BackendProtocol::install() of `version`; then handle_installed()
  };
  Kind kind = {};
  RequestId request = {};
  VersionName version = {};  ///< kInstall: which; kSend: the version that the server had
  bool is_anew = false;      ///< kAsk: the server may have been started anew

  bool operator==(const BackendAction&) const = default;
};

/// Decides what a server that generates for us is asked, and what of its answers counts. Pure: no I/O, and its caller
/// passes the time. At most one of kAsk and kInstall is under way.
///
/// The server follows the host's daemon by itself, or is told (is_told). It is asked which version it has, often while
/// a newer one is published. Requests go out only while it has one that the daemon has published. An answer counts if
/// all of its tokens are of such versions; one of a version that the daemon is about to publish waits for that a while.
/// Others begin anew.
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
  /// A token of kNoVersion: nobody knows which version sampled it.
  void handle_answer(Instant now, RequestId id, Result<BackendAnswer> answer);

  /// The daemon has this version.
  void handle_published(Instant now, VersionName name);
  /// What the server says it has.
  void handle_asked(Instant now, Result<Version> outcome);
  /// How the install of `name` ended.
  void handle_installed(Instant now, VersionName name, const Status& outcome);

  /// To be called every few milliseconds, and after each input until there is none.
  [[nodiscard]] std::optional<BackendAction> poll_action(Instant now);
  [[nodiscard]] std::vector<EngineEvent> take_events();
  /// A line for a person, once for each trouble and its end.
  [[nodiscard]] std::optional<std::string> poll_line();

  /// What requests are answered under; absent while that is not known.
  [[nodiscard]] std::optional<Version> version() const;
  [[nodiscard]] bool has_events() const { return !events_.empty(); }
  /// Requests that have not ended.
  [[nodiscard]] std::size_t open() const { return requests_.size(); }

 private:
  enum class Where : std::uint8_t {
    kWaiting,
    kSent,
    kEarly,  // answered under a version that is not published
  };
  struct Request {
    EngineRequest request;
    Where where = Where::kWaiting;
    bool is_cancelled = false;  // begins anew when its call has ended
    std::uint32_t attempts = 0;
    BackendAnswer answer;   // kEarly
    Instant early_until{};  // the same
  };
  using Requests = std::map<RequestId, Request>;

  void emit(Requests::iterator request, EngineEvent event);
  void accept(Requests::iterator request);
  void fail_request(Requests::iterator request, std::string why);
  void wait_again(Requests::iterator request);
  /// The same, unless it was tried too often for `why`.
  void try_again(Requests::iterator request, const std::string& why);
  /// kEarly ones count once their versions are published, and begin anew when their time is over.
  void settle_early(Instant now);
  void cancel_sent();
  [[nodiscard]] Duration backoff() const;
  void note_trouble(Instant now, const std::string& why);
  void note_well();
  void say(const std::string& why);
  [[nodiscard]] bool is_published(Version version) const;
  [[nodiscard]] bool are_published(const std::vector<EngineToken>& tokens) const;
  [[nodiscard]] std::optional<BackendAction> next_control(Instant now);

  const BackendCoreOptions options_;
  Requests requests_;
  std::deque<RequestId> waiting_;
  std::size_t sent_ = 0;  // the server has
  std::size_t early_ = 0;
  std::uint64_t next_id_ = 1;

  std::deque<Version> published_;  // the last ones
  std::optional<VersionName> newest_;
  std::optional<Version> server_;  // that it said last
  std::optional<Instant> unpublished_since_;
  std::optional<Instant> draining_until_;
  bool is_suspect_ = false;     // something failed since the server was heard of
  bool is_in_control_ = false;  // a kAsk or kInstall is under way
  Instant ask_at_{}, install_at_{};
  std::uint32_t failures_ = 0;  // in a row

  std::deque<BackendAction> cancels_;
  std::vector<EngineEvent> events_;
  std::deque<std::string> lines_;
  std::string said_;
};

}  // namespace weightcast
