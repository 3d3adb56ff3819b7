#include "sim/host/sim_disk.h"

#include <utility>

namespace weightcast::sim {

void SimDisk::read(FileRef file, std::uint64_t offset, MutableBytes into, Done done) {
  start([file = std::move(file), offset, into] { return read_fully(*file, offset, into, file->name()); },
        std::move(done));
}

void SimDisk::write(FileRef file, std::uint64_t offset, Bytes from, Done done) {
  start([file = std::move(file), offset, from] { return write_fully(*file, offset, from, file->name()); },
        std::move(done));
}

void SimDisk::sync(FileRef file, Done done) {
  start([file = std::move(file)] { return file->sync_data(); }, std::move(done));
}

void SimDisk::start(std::function<Status()> operation, Done done) {
  perform_at(clock_.now() + clock_.some_time(delay_max_), std::move(operation), std::move(done));
}

void SimDisk::perform_at(Instant when, std::function<Status()> operation, Done done) {
  at(when, [this, operation = std::move(operation), done = std::move(done)] {
    if (clock_.now() < stalled_until_) return perform_at(stalled_until_, operation, done);
    const Status status = operation();
    at(clock_.now() + clock_.some_time(delay_max_), [status, done] { done(status); });
  });
}

void SimDisk::at(Instant when, std::function<void()> task) {
  clock_.at(when, [alive = std::weak_ptr(alive_), task = std::move(task)] {
    if (!alive.expired()) task();
  });
}

}  // namespace weightcast::sim
