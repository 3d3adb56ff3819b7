#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/files/posix_file_system.h"
#include "bench/publish/bench_trainer.h"
#include "transport/io/uv_loop.h"
#include "transport/node/takeover/apply_changes.h"
#include "transport/node/takeover/published_snapshot.h"

namespace weightcast::bench {

/// Of one publication at an origin, from its beginning.
struct PublicationCost {
  double copied_s = 0;   ///< until the origin has its own copy; of changes with the patch
  double encoded_s = 0;  ///< until the patch from the version before is in the store as well
  double cpu_s = 0;
  bool in_place = false;  ///< the files of an older version were there to be brought up to date
};

/// A node's store in this process, on a loop of its own. Errors beside those named: kTimedOut (it does not get on),
/// kClosed (interrupted).
class BenchStore {
 public:
  /// `threads`: that each piece of work may have. Errors: those of Store::open().
  static Result<std::unique_ptr<BenchStore>> open(const std::filesystem::path& directory, unsigned threads = 2);
  explicit BenchStore(unsigned threads) : loop_(threads) {}
  ~BenchStore();

  [[nodiscard]] Store& store() const { return *store_; }
  [[nodiscard]] PosixFileSystem& files() { return files_; }
  [[nodiscard]] Jobs& jobs() { return jobs_; }
  /// Runs the loop until `holds`.
  Status wait(const std::function<bool()>& holds);
  /// Runs it until `begin` has called the observer's done.
  Result<MadePayload> await(const std::function<void(PayloadObserver)>& begin);

 private:
  PosixFileSystem files_;
  UvLoop loop_;
  Jobs jobs_{loop_};
  std::unique_ptr<Store> store_;
};

enum class PublishBy : std::uint8_t {
  kTakingOver,  ///< all of it
  kComparing,   ///< all of it, with the version before; the first is taken over
  kListing,     ///< the trainer's list of changes
};

/// The parts of an origin that a publication takes.
class BenchOrigin {
 public:
  static Result<std::unique_ptr<BenchOrigin>> open(const std::filesystem::path& directory, unsigned threads = 2);

  /// Publishes the trainer's weights as the next version, with `makes_patch` the patch to it, and waits until it is
  /// durable. Errors: those of take_over(), apply_changes() and make_patch().
  Result<PublicationCost> publish(const BenchTrainer& trainer, PublishBy way, bool makes_patch,
                                  std::uint64_t& patch_bytes);
  /// Packs the latest version; the payload stays until the next publication. Errors: those of make_patch().
  Result<MadePayload> pack();
  /// Whether the latest version is what the trainer has. Errors: kCorrupt.
  Status check(const BenchTrainer& trainer);

  [[nodiscard]] Version version() const { return version_; }
  [[nodiscard]] BenchStore& node() const { return *node_; }

 private:
  explicit BenchOrigin(std::unique_ptr<BenchStore> node) : node_(std::move(node)) {}

  [[nodiscard]] Result<std::shared_ptr<const PublishedSnapshot>> open_whole(const BenchTrainer& trainer,
                                                                            Version base) const;

  std::unique_ptr<BenchStore> node_;
  Version version_{};
};

}  // namespace weightcast::bench
