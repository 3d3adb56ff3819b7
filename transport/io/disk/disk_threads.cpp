#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "transport/io/disk/disk_backends.h"
#include "transport/io/disk/disk_batching.h"
#include "transport/io/uv_loop.h"

namespace weightcast {
namespace {

// libuv's pool has four threads or more; one stays free for name resolution and hashing.
constexpr std::size_t kRunsInFlightMax = 3;

ssize_t perform(const IoRun& run) {
  const std::span<const iovec> pieces = run.pieces();
  const auto count = static_cast<int>(pieces.size());
  const auto offset = static_cast<off_t>(run.offset());
  ssize_t result = -1;
  switch (run.kind()) {
    case IoRun::Kind::kRead: result = ::preadv(run.fd(), pieces.data(), count, offset); break;
    case IoRun::Kind::kWrite: result = ::pwritev(run.fd(), pieces.data(), count, offset); break;
    case IoRun::Kind::kSync: result = ::fdatasync(run.fd()); break;
  }
  return result < 0 ? -errno : result;
}

class ThreadDisk final : public BatchingDisk {
 public:
  explicit ThreadDisk(UvLoop& loop) : BatchingDisk(loop, kRunsInFlightMax), loop_(loop) {}

  ~ThreadDisk() override {
    std::unique_lock lock(under_way_->mutex);
    under_way_->ended.wait(lock, [this] { return under_way_->count == 0; });
  }

  [[nodiscard]] DiskBackend backend() const override { return DiskBackend::kThreadPool; }

 private:
  /// Outlives the disk in the callbacks that the loop still holds.
  struct UnderWay {
    std::mutex mutex;
    std::condition_variable ended;
    std::size_t count = 0;
  };

  void start(std::unique_ptr<IoRun> run) override {
    {
      const std::lock_guard lock(under_way_->mutex);
      ++under_way_->count;
    }
    std::shared_ptr<IoRun> shared = std::move(run);
    loop_.offload(
        [shared, under_way = under_way_] {
          while (!shared->ended()) shared->handle_result(perform(*shared));
          const std::lock_guard lock(under_way->mutex);
          --under_way->count;
          under_way->ended.notify_all();
        },
        [this, shared, alive = std::weak_ptr(alive_)] {
          if (!alive.expired()) handle_ended(std::make_unique<IoRun>(std::move(*shared)));
        });
  }

  void submit() override {}

  UvLoop& loop_;
  std::shared_ptr<UnderWay> under_way_ = std::make_shared<UnderWay>();
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // expires with the disk
};

}  // namespace

std::unique_ptr<Disk> open_thread_disk(UvLoop& loop) { return std::make_unique<ThreadDisk>(loop); }

}  // namespace weightcast
