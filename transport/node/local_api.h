#pragma once

#include <array>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files/open_files.h"
#include "patch/changes/list_changes.h"
#include "proto/local_messages.h"
#include "transport/io/event_loop.h"
#include "transport/io/net/network.h"

namespace weightcast {

/// A publication that a local program asks for. The source is read until `taken` is told.
struct PublishOrder {
  Version version{};
  std::string path;        ///< a safetensors file or a directory
  bool file_tree = false;  ///< a directory of any files
  FileRef region;          ///< instead of a path: see adopt_region()
  std::uint64_t region_bytes = 0;
  FileRef files = nullptr;  ///< beside the weights, in such memory: see unpack_files()
  std::uint64_t files_bytes = 0;
  bool allow_nonfinite = false;
  bool new_model = false;
  /// The region holds changes (patch/changes/change_names.h): of so many bytes, against `base`.
  bool changes = false;
  std::uint64_t changes_bytes = 0;
  Version base{};
};

/// A version that was taken over.
struct TakenOver {
  std::uint64_t snapshot_bytes = 0;
  std::string notice = {};  ///< what whoever published should know of it
};

/// kWrongBase: `version` changes `base`, and the last one is `latest`.
[[nodiscard]] Error wrong_base(Version version, Version base, Version latest);

/// What a node answers on its local socket. Origin and worker each implement it.
class LocalService {
 public:
  virtual ~LocalService() = default;

  /// All nodes, of any number; LocalApi cuts it to messages. A single node fits one.
  [[nodiscard]] virtual local::StatusReply status() = 0;
  [[nodiscard]] virtual local::VersionsReply versions() = 0;
  /// The last publications, or one of them with its workers. Errors: kNotAllowed (this node is a worker), kNotFound.
  [[nodiscard]] virtual Result<local::HistoryReply> history(Version version) = 0;
  /// Goes by what the daemon's configuration file says now; what has changed, a line each. Errors: those of the file;
  /// kNotAllowed, which names what cannot change while the node runs. Nothing has changed then.
  [[nodiscard]] virtual Result<std::vector<std::string>> reload() {
    return fail(Errc::kUnsupported, Op::kConfigure, "this node has no configuration to read");
  }
  /// Whether this node does what it is there for, and why not.
  [[nodiscard]] virtual local::ReadyReply readiness() = 0;
  /// The version in use, if any.
  [[nodiscard]] virtual std::optional<local::VersionInstalled> installed() = 0;

  /// One that is complete here, if it is.
  [[nodiscard]] virtual std::optional<local::VersionInstalled> installed_version(Version version) = 0;
  /// These stay until others are named.
  virtual void pin(std::vector<Version> versions) = 0;

  /// Writes the changes from one version to the other, into `into`, which is empty; with `old_values` what the cells
  /// were, too. Where the versions are here, they are pinned. `told` runs once, later: see tell_changes().
  virtual void changes(Version from, std::string from_digest, Version to, bool old_values, FileRef into,
                       std::function<void(Result<ListedChanges>)> told) = 0;

  /// The version that wants to take the place of its files, if any.
  [[nodiscard]] virtual std::optional<local::VersionPreparing> preparing() = 0;

  /// The least number that a publication may have now. Errors: kNotAllowed (this node publishes nothing),
  /// kInvalidArgument (no number is left).
  [[nodiscard]] virtual Result<Version> next_version() = 0;
  /// The worker `name` serves from now on, or waits on standby. Errors: kNotAllowed (this node is a worker), kNotFound.
  [[nodiscard]] virtual Status set_serving(std::string_view name, bool serves) = 0;
  /// The lost worker `name` is known no more. Errors: kNotAllowed (this node is a worker), kNotFound, kBusy
  /// (connected).
  [[nodiscard]] virtual Status forget(std::string_view name) = 0;
  /// Whether a program decides by that who serves. Errors: kNotAllowed (this node is a worker).
  [[nodiscard]] virtual Status set_provisioned(bool provisioned) = 0;
  /// Takes the weights over; `taken` runs once, later, with what came of it.
  virtual void publish(PublishOrder order, std::function<void(Result<TakenOver>)> taken) = 0;
  /// How far a version is; absent if it is not known.
  [[nodiscard]] virtual std::optional<local::PublishResult> publish_result(Version version, double fraction) = 0;
  [[nodiscard]] virtual local::PublishProgress publish_progress(Version version) = 0;
};

/// The server side of DIR/api.sock. Publications are taken over one after another, in the order in which they were
/// asked for, which is that of their numbers; at most kPublishQueueMax wait, further ones are refused with kBusy. Each
/// is accepted at once, or refused. Requests of one connection are answered in order, and no further one is read while
/// an answer has not left. Loop thread only.
class LocalApi {
 public:
  static constexpr std::size_t kPublishQueueMax = 8;
  static constexpr std::size_t kWaitsMax = 8;  ///< of one session
  static constexpr std::size_t kPinsMax = 4;   ///< of one session
  static constexpr std::size_t kSessionsMax = 256;
  static constexpr std::size_t kRequestBytesMax = 64 * kKiB;
  /// Nodes of a StatusReply, but for the last one in it.
  static constexpr std::size_t kStatusPageBytes = 256 * kKiB;
  /// What a client that does not read may leave waiting beside the answer to its last request.
  static constexpr std::size_t kOutboxBytesMax = 32 * kMiB;

  [[nodiscard]] static Result<std::unique_ptr<LocalApi>> open(EventLoop& loop, Network& network,
                                                              const std::string& socket_path, LocalService& service);
  ~LocalApi();
  LocalApi(const LocalApi&) = delete;
  LocalApi& operator=(const LocalApi&) = delete;

  /// Something changed: looks whether somebody waits for it.
  void handle_change();

  /// Programs that were turned away: other users', and those for whom there was no room.
  [[nodiscard]] std::uint64_t refused_count() const { return listener_->refused_count() + crowded_out_; }

 private:
  using RequestId = std::uint64_t;

  struct Session {
    std::unique_ptr<FrameConnection> connection;
    bool closed = false;

    std::deque<std::string> outbox;  // one is with the connection, these come after it
    std::size_t outbox_bytes = 0;
    bool sending = false;

    std::optional<RequestId> subscription;
    // The last version that a subscriber was told of, after the count of its run: of another run, none is older.
    std::pair<std::uint32_t, Version> told{};
    Version preparing{};  // the one that he was told to let go for
    struct Wait {
      RequestId request{};
      Version version{};
      double fraction = 0;
      Instant deadline{};
      bool progress = false;
      std::optional<Instant> hopeless_since = {};  ///< since when nobody can still get there
    };
    std::vector<Wait> waits;
    std::vector<Version> pins;  // each as often as it was acquired
    bool provisions = false;
  };
  using SessionPtr = std::shared_ptr<Session>;
  /// Who asked for a publication.
  struct Asker {
    std::weak_ptr<Session> session;
    RequestId id{};
    Version version{};
    Instant received_at{};
  };
  struct Queued {
    Asker asker;
    PublishOrder order;
  };

  LocalApi(EventLoop& loop, LocalService& service);
  void accept(std::unique_ptr<FrameConnection> connection);
  void handle_closed(const SessionPtr& session);
  /// Errors: kUnsupported (not a request).
  Status handle(const SessionPtr& session, const local::Message& message);
  void handle_request(const SessionPtr& session, RequestId id, const local::PublishRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::PublishChangesRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::WaitRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::NextVersionRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::StatusRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::VersionsRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::HistoryRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::ReadyRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::ServeRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::ForgetRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::ReloadRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::SubscribeRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::AcquireRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::ReleaseRequest& request);
  void handle_request(const SessionPtr& session, RequestId id, const local::ChangesRequest& request);
  Result<PublishOrder> order_of(Session& session, const local::PublishRequest& request);
  Result<PublishOrder> order_of(Session& session, const local::PublishChangesRequest& request);
  /// What the two kinds of publications have in common.
  Result<PublishOrder> order_for(std::uint64_t version, bool allow_nonfinite);
  void handle_order(const SessionPtr& session, RequestId id, Result<PublishOrder> order);
  Status serve(Session& session, const local::ServeRequest& request);
  void pin_all();
  [[nodiscard]] Result<Version> next_version();
  /// The version that is the last one when all that wait have been taken over.
  [[nodiscard]] Version last_version();
  [[nodiscard]] bool is_pending(Version version) const;
  void start_next_publish();
  void finish_publish(const Asker& asker, const Result<TakenOver>& taken);
  void check_waits(bool send_progress);
  bool check_wait(Session& session, Session::Wait& wait, bool send_progress);
  void tell_subscriber(Session& session, const std::optional<local::VersionInstalled>& installed,
                       const std::optional<local::VersionPreparing>& preparing);

  void reply(Session& session, RequestId id, local::Message::Kind answer);
  /// `result` is a Result of an answer.
  template <typename R>
  void reply_result(Session& session, RequestId id, R result);
  void reply_error(Session& session, RequestId id, const Error& error);
  void send(Session& session, std::string body);
  void send_next(Session& session);

  EventLoop& loop_;
  LocalService& service_;
  std::optional<std::array<Version, 2>> listed_;  // the changes between them are being written
  std::unique_ptr<Listener> listener_;
  Timer timer_;
  Instant timer_due_{};     // while it is armed
  Deferred start_publish_;  // after the reply: threads that take over would compete with it
  std::list<std::shared_ptr<Session>> sessions_;
  std::uint64_t crowded_out_ = 0;
  std::deque<Queued> queue_;
  Version taking_ = kNoVersion;  // the version that is being taken over
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weightcast
