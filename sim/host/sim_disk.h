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

  /// The disk does not answer before that time: no operation takes effect.
  void stall_until(Instant when) { stalled_until_ = when; }

  [[nodiscard]] DiskBackend backend() const override { return DiskBackend::kThreadPool; }
  void read(FileRef file, std::uint64_t offset, MutableBytes into, Done done) override;
  void write(FileRef file, std::uint64_t offset, Bytes from, Done done) override;
  void flush() override {}
  void sync(FileRef file, Done done) override;

 private:
  void start(std::function<Status()> operation, Done done);
  void perform_at(Instant when, std::function<Status()> operation, Done done);
  /// Runs `task` at that time, unless the disk is gone by then.
  void at(Instant when, std::function<void()> task);

  SimClock& clock_;
  const Duration delay_max_;
  Instant stalled_until_{};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // expires with the disk
};

}  // namespace weightcast::sim
