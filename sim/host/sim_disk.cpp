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
  ++under_way_;
  clock_.at(clock_.now() + clock_.some_time(delay_max_),
            [this, alive = alive_, operation = std::move(operation), done = std::move(done)]() mutable {
              if (*alive) perform(std::move(operation), std::move(done));
            });
}

void SimDisk::perform(std::function<Status()> operation, Done done) {
  if (clock_.now() < stalled_until_) {
    clock_.at(stalled_until_,
              [this, alive = alive_, operation = std::move(operation), done = std::move(done)]() mutable {
                if (*alive) perform(std::move(operation), std::move(done));
              });
    return;
  }
  Status status = operation();
  clock_.at(clock_.now() + clock_.some_time(delay_max_),
            [this, alive = alive_, status = std::move(status), done = std::move(done)] {
              if (!*alive) return;
              --under_way_;
              done(status);
            });
}

}  // namespace weightcast::sim
