#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cancellation.h"
#include "client/local_channel.h"
#include "client/region_pool.h"
#include "weightcast/weightcast.h"

namespace weightcast::client {

struct PublishOptions {
  std::uint64_t version = WC_NEXT_VERSION;
  bool allow_nonfinite = false;
  bool second_region = false;
  bool new_model = false;
  bool file_tree = false;                   ///< publish_path() alone: of a directory of any files
  std::uint32_t parts = 0;                  ///< begin(): that are to be done before the commit
  std::shared_ptr<Region> files = nullptr;  ///< see files.h; null: those of the version before are kept
};

struct WaitOptions {
  double fraction = 0;  ///< of the active workers; 0: the origin has its own copy
  std::function<void(const local::PublishProgress&)> on_progress;
};

struct Outcome {
  local::PublishResult result;
  std::optional<double> take_s;
  std::string notice = {};  ///< what the origin said when it took it over, if it said something
};

/// What is behind a wc_client; weightcast.h says what each call does. Used by one thread at a time, but for cancel().
///
/// Publications are answered long after they were sent, between the answers to other requests. So every message that
/// comes is first looked at for the publication that it belongs to.
class Client {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Client>> open(std::string state_dir, Deadline deadline);

  [[nodiscard]] Result<local::StatusReply> status(Deadline deadline);
  [[nodiscard]] Result<local::VersionsReply> versions(Deadline deadline);
  /// `version` 0: of all that the origin remembers. Errors: kNotFound (it does not remember that one), kNotAllowed (the
  /// daemon is a worker).
  [[nodiscard]] Result<local::HistoryReply> history(std::uint64_t version, Deadline deadline);
  /// Whether the daemon does what it is there for.
  [[nodiscard]] Result<local::ReadyReply> readiness(Deadline deadline);
  [[nodiscard]] Result<std::uint64_t> next_version(Deadline deadline);
  /// `name` "": of no worker. `provisions`: until the connection ends. Errors: kNotFound (no such worker), kNotAllowed
  /// (the daemon is a worker).
  [[nodiscard]] Status serve(const std::string& name, bool serves, bool provisions, Deadline deadline);
  /// Errors: kNotFound, kBusy (it is connected), kNotAllowed (the daemon is a worker).
  [[nodiscard]] Status forget(const std::string& name, Deadline deadline);

  /// The daemon reads its configuration file anew. What has changed, a line each. Errors: those of the file;
  /// kNotAllowed, which names what may not change while it runs. Then nothing has changed.
  [[nodiscard]] Result<std::vector<std::string>> reload(Deadline deadline);

  /// Writes one address per tensor.
  [[nodiscard]] Status begin(const PublishOptions& options, std::span<const wc_tensor> tensors, void** addresses,
                             Deadline deadline);
  /// Writes two addresses per piece.
  [[nodiscard]] Status begin_changes(const PublishOptions& options, std::uint64_t base_version,
                                     std::span<const wc_piece> pieces, void** indices, void** values,
                                     Deadline deadline);
  [[nodiscard]] Result<std::uint64_t> commit(const std::optional<PublishOptions>& options, Deadline deadline);
  void abort();
  [[nodiscard]] Status reserve(std::span<const wc_tensor> tensors, std::size_t regions);
  [[nodiscard]] Result<std::uint64_t> publish(const PublishOptions& options, std::span<const wc_tensor> tensors,
                                              Deadline deadline);
  [[nodiscard]] Result<std::uint64_t> publish_path(const PublishOptions& options, const std::string& path,
                                                   Deadline deadline);
  [[nodiscard]] Result<std::uint64_t> publish_changes(const PublishOptions& options, std::uint64_t base_version,
                                                      std::span<const wc_change> changes, Deadline deadline);
  /// `version` 0: the last one committed. An outcome that is not `reached` means that the time was over.
  [[nodiscard]] Result<Outcome> wait(std::uint64_t version, const WaitOptions& options, Deadline deadline);
  [[nodiscard]] Result<int> region_fd() const;
  /// Which publication the region that was begun is filled for.
  [[nodiscard]] Result<std::uint64_t> region_id();
  /// The region that was begun, and its tensors by their place in it.
  [[nodiscard]] Result<std::pair<std::shared_ptr<Region>, std::vector<TensorInfo>>> share_region();

  Cancellation& cancellation() { return cancellation_; }

 private:
  /// One that was sent. It ends when the origin reads its source no more, or when nobody can say.
  struct Publication {
    enum class State { kSent, kAccepted, kTaken, kFailed, kLost };
    std::uint64_t request_id = 0;
    std::uint64_t version = 0;  // 0 while the origin has not given it one
    RegionPool* pool = nullptr;
    Region* region = nullptr;  // of the pool, that the origin may be reading
    State state = State::kSent;
    double take_s = 0;
    std::string notice = {};
    std::optional<Error> error;

    [[nodiscard]] bool open() const { return state == State::kSent || state == State::kAccepted; }
  };
  struct Begun {
    RegionPool* pool = nullptr;
    Region* region = nullptr;  // of the pool
    PublishOptions options;
    std::optional<std::uint64_t> base_version = std::nullopt;  // of changes
  };

  explicit Client(std::string state_dir) : state_dir_(std::move(state_dir)) {}
  /// Without waiting. After it there is no channel if the connection is lost.
  void take_what_has_come();
  /// Takes what has come, and connects where the connection is lost.
  Status connect(Deadline deadline);
  void disconnect();
  /// Receives one message. It is given back if it belongs to no publication.
  Result<std::optional<local::Message>> receive(Deadline deadline);
  bool take_for_publication(const local::Message& message);
  void end(Publication& publication, Publication::State state);

  /// Sends a request and receives its next answer. An ErrorReply is an error.
  Result<std::uint64_t> send(local::Message::Kind request, Deadline deadline);
  Result<local::Message> answer(std::uint64_t request_id, Deadline deadline);
  /// Sends a question and receives its one answer. Errors: kUnsupported (it is no Reply), and those of both.
  template <typename Reply>
  Result<Reply> ask(local::Message::Kind question, Deadline deadline);
  /// A region for what the pool has laid out; waits until there is one.
  Result<Region*> take_region(RegionPool& pool, const PublishOptions& options, Deadline deadline);
  [[nodiscard]] Status check_begun() const;
  [[nodiscard]] Status check_nothing_begun() const;
  /// `files` (may be null) goes beside the region.
  Result<std::uint64_t> send_publish(local::Message::Kind request, RegionPool* pool, Region* region,
                                     const Region* files, Deadline deadline);
  Publication* find(std::uint64_t version);
  Result<Outcome> receive_outcome(std::uint64_t request_id, const WaitOptions& options, Deadline deadline);

  const std::string state_dir_;
  Cancellation cancellation_;
  std::unique_ptr<LocalChannel> channel_;
  RegionPool regions_;
  RegionPool change_regions_{RegionPool::Fit::kAtLeast};
  std::optional<Begun> begun_;
  std::deque<Publication> publications_;  // the last ones
};

}  // namespace weightcast::client
