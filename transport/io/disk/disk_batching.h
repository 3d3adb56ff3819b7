#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "transport/io/disk/disk.h"
#include "transport/io/disk/io_run.h"

struct uv_prepare_s;
struct uv_timer_s;

namespace weightcast {

/// The half of a Disk that both backends share. It joins writes into runs and delays them for neighbours. Once per turn
/// of the loop it hands runs to the backend, at most as many as the backend can take.
class BatchingDisk : public Disk {
 public:
  void read(FileRef file, std::uint64_t offset, MutableBytes into, Done done) final;
  void write(FileRef file, std::uint64_t offset, Bytes from, Done done) final;
  void flush() final;
  void sync(FileRef file, Done done) final;

 protected:
  BatchingDisk(UvLoop& loop, std::size_t runs_in_flight_max);
  ~BatchingDisk() override;
  BatchingDisk(const BatchingDisk&) = delete;
  BatchingDisk& operator=(const BatchingDisk&) = delete;

  /// Begins `run`; submit() follows in the same turn.
  virtual void start(std::unique_ptr<IoRun> run) = 0;
  virtual void submit() = 0;
  /// The backend returns a run that it started, once the run has ended. On the loop.
  void handle_ended(std::unique_ptr<IoRun> run);
  /// Asks for another submit() at the end of this turn.
  void wake();

 private:
  /// Of at most kWriteBytes.
  void write_piece(const FileRef& file, std::uint64_t offset, Bytes from, Done done);
  void queue(std::unique_ptr<IoRun> run);
  void release_waiting_writes();
  void dispatch();

  const std::size_t runs_in_flight_max_;
  std::size_t runs_in_flight_ = 0;
  std::deque<std::unique_ptr<IoRun>> ready_;
  std::vector<std::unique_ptr<IoRun>> waiting_writes_;
  std::size_t waiting_bytes_ = 0;
  // Both are freed by libuv's close callback.
  uv_prepare_s* end_of_turn_;
  uv_timer_s* write_delay_;
};

}  // namespace weightcast
