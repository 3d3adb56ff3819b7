#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/time.h"
#include "patch/snapshot/tensor.h"
#include "proto/local.pb.h"

namespace weightcast {

// What trainers and inference engines link: the local API of a daemon, over DIR/api.sock. Everything here blocks, with
// a bound; nothing here starts a thread. An object is used by one thread at a time.

class LocalChannel;  // client/local_channel.h

struct PublishOptions {
  /// Return when this fraction of the active workers has installed the version; 0: when the origin has taken it over.
  double wait_fraction = 0;
  /// Bound on the whole call. The daemon keeps it while it waits for workers; one that does not answer at all is given
  /// two seconds more.
  Duration timeout = std::chrono::seconds(300);
  /// Publish although a tensor holds NaN or infinity.
  bool allow_nonfinite = false;
  /// Called a few times a second while waiting.
  std::function<void(const local::PublishProgress&)> on_progress;
};

struct PublishOutcome {
  Version version{};
  std::string kind;  ///< "full", "packed" (full, but coded), "patch", or "undecided" while that is being made
  std::uint64_t payload_bytes = 0;
  std::uint32_t workers = 0;  ///< active when the call returned
  std::uint32_t installed = 0;
  /// T_bcast(0.5), (0.9), (1.0) in seconds since the origin began; absent where not reached.
  std::optional<double> t50_s, t90_s, t100_s;
  bool reached = false;  ///< wait_fraction was reached in time
  std::string topology;
  double predicted_s = 0;
  std::uint64_t origin_egress_bytes = 0;  ///< chunk bytes that the origin sent since the publication began
  double take_s = 0;                      ///< until the origin had its own copy
  std::vector<std::string> missing;
};

/// Requests to the daemon whose state directory is `state_dir`.
class Client {
 public:
  /// Errors: kNotFound (no daemon runs there), kTimedOut, kNotAllowed (another user's).
  [[nodiscard]] static Result<Client> open(const std::string& state_dir, Duration timeout = std::chrono::seconds(5));
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  /// Publishes a safetensors file or a Hugging Face style directory. The source may be changed once this returns
  /// without error. Errors of the origin come as they are: kAlreadyExists (version not greater than the last),
  /// kNotAllowed (a worker was asked), kBusy, kCorrupt (not a readable snapshot), kNoSpace; kTimedOut if nothing was
  /// taken over in time. A wait_fraction that was not reached is no error: see PublishOutcome::reached.
  [[nodiscard]] Result<PublishOutcome> publish(Version version, const std::string& path, const PublishOptions& options);

  /// All nodes that the daemon knows. Errors, here and below: kTimedOut (a late answer is discarded), kClosed.
  [[nodiscard]] Result<local::StatusReply> status(Duration timeout = std::chrono::seconds(5));
  [[nodiscard]] Result<local::VersionsReply> versions(Duration timeout = std::chrono::seconds(5));

 private:
  explicit Client(std::unique_ptr<LocalChannel> channel);
  std::unique_ptr<LocalChannel> channel_;
};

/// A tensor in the trainer's memory: `data` stays the caller's and is read only during publish().
struct TensorSource {
  TensorInfo info;  ///< offset_bytes is ignored
  Bytes data;       ///< info.size_bytes long, little-endian, row-major
};

/// Publishes tensors from memory. publish() blocks for one copy of the tensors into shared memory, never for hashing,
/// encoding or sending. The shared memory is kept between calls: the first call also pays for its pages, unless
/// reserve() did. Invariant: it is written only while the origin cannot read it, which is so before it is offered and
/// after the origin has said that it has its copy, or will not make one.
class TensorPublisher {
 public:
  [[nodiscard]] static Result<TensorPublisher> open(const std::string& state_dir);
  TensorPublisher(TensorPublisher&&) noexcept;
  TensorPublisher& operator=(TensorPublisher&&) noexcept;
  ~TensorPublisher();

  /// Makes room for snapshots of up to `bytes` ahead of time. Errors: kNoSpace (/dev/shm is too small), kIo, kBusy (the
  /// origin is still copying).
  [[nodiscard]] Status reserve(std::uint64_t bytes);

  /// Hands the tensors over under `version`. If the origin is still copying the call before, waits for that first, at
  /// most `options.timeout`: past that nothing is written or sent, and the call may be repeated (kTimedOut). Errors: as
  /// Client::publish, those that only the origin finds come from wait() or from the next publish(); kInvalidArgument
  /// (names, sizes); kClosed (the daemon ended: open another publisher).
  [[nodiscard]] Status publish(Version version, std::span<const TensorSource> tensors, const PublishOptions& options);

  /// Waits for the outcome of the last publish(), as its options say.
  [[nodiscard]] Result<PublishOutcome> wait();

 private:
  struct Impl;
  explicit TensorPublisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct InstalledVersion {
  Version version{};
  std::string path;  ///< a directory with the snapshot's files; stays for as long as the daemon keeps the version
  std::string snapshot_digest;
};

/// Tells an inference engine what to use: the version in use now first, then each that follows.
///
/// A worker with --single-copy makes a version of the files of the one before, and waits until nobody has them open or
/// mapped. The engine is told so ("prepare"): it stops reading, closes and unmaps the files (what it has copied, to a
/// device say, it may go on using), and takes the version that next() returns after that, which is the old one if the
/// new one came to nothing. In between `current` leads nowhere, and what is still mapped is never changed.
class VersionSubscription {
 public:
  [[nodiscard]] static Result<VersionSubscription> open(const std::string& state_dir);
  VersionSubscription(VersionSubscription&&) noexcept;
  VersionSubscription& operator=(VersionSubscription&&) noexcept;
  ~VersionSubscription();

  /// Calls `prepare` from inside next(), with the version that waits, when its files have to be let go.
  void on_prepare(std::function<void(Version)> prepare) { prepare_ = std::move(prepare); }

  /// Errors: kTimedOut (none in time; call again), kClosed (the daemon ended).
  [[nodiscard]] Result<InstalledVersion> next(Duration timeout);

 private:
  VersionSubscription(std::unique_ptr<LocalChannel> channel, std::uint64_t request);
  std::unique_ptr<LocalChannel> channel_;
  std::uint64_t request_;
  std::function<void(Version)> prepare_;
};

}  // namespace weightcast
