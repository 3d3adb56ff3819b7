#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "transport/core/origin/catch_up.h"
#include "transport/io/jobs.h"
#include "transport/io/store/store.h"
#include "transport/node/payload/open_payload.h"

namespace weightcast {

/// Who is told how far a payload is; all on the loop.
struct PayloadObserver {
  /// There is something to make a payload of: an open manifest without any parts. `packed_share`: what
  /// packing would leave of its bytes, by samples where they were taken. Not called for one that is refused before.
  std::function<void(std::shared_ptr<const Manifest>, double packed_share)> begun;
  /// What was made so far can be read from the store, as whole parts.
  std::function<void(MadePayload)> grown;
  /// The last call. When it succeeded all of it is in the store; after an error what could be read so far is gone when
  /// it returns.
  std::function<void(Result<MadePayload>)> done;
  /// What was begun comes to nothing, and the full payload is made in its place: see apply_changes(), which alone does
  /// so. `why`: in a few words.
  std::function<void(const Error& why)> withdrawn = [](const Error&) {};
};

/// What a producer makes a payload of. Functions are called in the order in which they stand here.
class PayloadSource {
 public:
  /// Reports chunks from `first` on, whose `bytes` are in the store's files. Any thread.
  using Report = std::function<void(std::uint32_t first, std::span<const ContentDigest> digests, std::uint64_t bytes)>;
  struct Announcement {
    Manifest manifest;  ///< open, without parts
    double packed_share = kPackedShareOfWeights;
    GrowthPace pace;
    ManifestAuthor author = {};
  };
  virtual ~PayloadSource() = default;
  /// Opens what it is made of and looks whether it is worth it. Off the loop.
  virtual Status open() = 0;
  /// On the loop.
  virtual Result<Announcement> announce() = 0;
  /// Makes room in the store. On the loop; `done` is called later.
  virtual void begin(Store& store, std::function<void(Status)> done) = 0;
  /// How many times produce() runs, side by side.
  [[nodiscard]] virtual unsigned jobs() const = 0;
  /// Writes the payload to the store's files. Off the loop. When one of them fails the others end soon: see stop().
  virtual Status produce(const Report& report) = 0;
  /// Another produce() has failed. Any thread.
  virtual void stop() = 0;
  /// After the last produce(), on the loop: the digest of the snapshot.
  virtual Result<Checksum> end() = 0;
  /// Hands over what is complete. On the loop; `done` is called later.
  virtual void finish(Store& store, const MadePayload& made, std::function<void(Status)> done) = 0;
};

/// Makes one payload of the store, off the loop, and tells how far it is: takes over a snapshot, encodes a patch or a
/// packed payload. Kept alive by what is under way; it ends with `jobs`, whose stop drops all that would follow.
///
///   open() -> announce() -> observer.begun -> begin() -> produce() -> end() -> finish() -> observer.done
///                                                          |  observer.grown, now and then
///
/// An error at any step is the observer's at once. What is in the store by then is discarded after it was told.
class PayloadProducer : public std::enable_shared_from_this<PayloadProducer> {
 public:
  /// The jobs and the store outlive it.
  PayloadProducer(Jobs& jobs, Store& store, std::unique_ptr<PayloadSource> source, PayloadObserver observer);

  void start();

 private:
  void announce();
  void produce();
  void report(std::uint32_t first, std::span<const ContentDigest> digests, std::uint64_t bytes);
  void finish();
  void abandon(const Error& why);
  void note(const Status& status);

  Jobs& jobs_;
  Store& store_;
  const std::unique_ptr<PayloadSource> source_;
  const PayloadObserver observer_;
  std::optional<OpenPayload> payload_;  // from announce() on
  unsigned running_ = 0;                // produce()s
  Instant produces_since_{};
  bool closed_ = false;  // all is told
  std::mutex telling_;   // so that what is told grows
  std::mutex mutex_;     // guards error_ while jobs run
  std::optional<Error> error_;
};

}  // namespace weightcast
