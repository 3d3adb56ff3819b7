#pragma once

#include <memory>

#include "sim/host/sim_clock.h"
#include "transport/io/disk/disk.h"

namespace weightcast::sim {

/// The Disk of a simulated node, over the files of its SimFileSystem. The seed chooses the order in which operations
/// end, and the moment at which each takes effect. An operation that fails may have moved some bytes, and moves no
/// more. Destroying the disk drops operations that have not taken effect, as killing the process may.
class SimDisk final : public Disk {
 public:
  /// Operations take up to `delay_max` each.
  explicit SimDisk(SimClock& clock, Duration delay_max = std::chrono::milliseconds(20))
      : clock_(clock), delay_max_(delay_max) {}
  ~SimDisk() override { *alive_ = false; }

  /// The disk does not answer before that time: no operation takes effect.
  void stall_until(Instant when) { stalled_until_ = when; }
  /// Operations that have not ended.
  [[nodiscard]] std::size_t under_way() const { return under_way_; }

  [[nodiscard]] DiskBackend backend() const override { return DiskBackend::kThreadPool; }
  void read(FileRef file, std::uint64_t offset, MutableBytes into, Done done) override;
  void write(FileRef file, std::uint64_t offset, Bytes from, Done done) override;
  void flush() override {}
  void sync(FileRef file, Done done) override;

 private:
  void start(std::function<Status()> operation, Done done);
  void perform(std::function<Status()> operation, Done done);

  SimClock& clock_;
  const Duration delay_max_;
  Instant stalled_until_{};
  std::size_t under_way_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weightcast::sim
