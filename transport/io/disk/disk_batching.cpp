#include "transport/io/disk/disk_batching.h"
#include "transport/io/uv_loop.h"

#include <uv.h>

#include <algorithm>
#include <utility>

namespace weightcast {

BatchingDisk::BatchingDisk(UvLoop& loop, std::size_t runs_in_flight_max)
    : runs_in_flight_max_(runs_in_flight_max), end_of_turn_(new uv_prepare_t), write_delay_(new uv_timer_t) {
  WC_CHECK(uv_prepare_init(loop.uv(), end_of_turn_) == 0);
  WC_CHECK(uv_timer_init(loop.uv(), write_delay_) == 0);
  end_of_turn_->data = this;
  write_delay_->data = this;
}

BatchingDisk::~BatchingDisk() {
  uv_close(reinterpret_cast<uv_handle_t*>(end_of_turn_),
           [](uv_handle_t* handle) { delete reinterpret_cast<uv_prepare_t*>(handle); });
  uv_close(reinterpret_cast<uv_handle_t*>(write_delay_),
           [](uv_handle_t* handle) { delete reinterpret_cast<uv_timer_t*>(handle); });
}

void BatchingDisk::read(FileRef file, std::uint64_t offset, MutableBytes into, Done done) {
  auto run = std::make_unique<IoRun>(IoRun::Kind::kRead, std::move(file), offset);
  run->add({into.data(), into.size()}, std::move(done));
  queue(std::move(run));
}

void BatchingDisk::sync(FileRef file, Done done) {
  auto run = std::make_unique<IoRun>(IoRun::Kind::kSync, std::move(file), 0);
  run->add({nullptr, 0}, std::move(done));
  queue(std::move(run));
}

void BatchingDisk::write(FileRef file, std::uint64_t offset, Bytes from, Done done) {
  if (from.size() <= kWriteBytes) return write_piece(file, offset, from, std::move(done));
  const Done joint = Disk::joint((from.size() + kWriteBytes - 1) / kWriteBytes, std::move(done));
  for (; !from.empty(); from = from.subspan(std::min(from.size(), kWriteBytes))) {
    const Bytes piece = from.first(std::min(from.size(), kWriteBytes));
    write_piece(file, offset, piece, joint);
    offset += piece.size();
  }
}

void BatchingDisk::write_piece(const FileRef& file, std::uint64_t offset, Bytes from, Done done) {
  const iovec piece{const_cast<std::byte*>(from.data()), from.size()};
  auto run = std::find_if(waiting_writes_.begin(), waiting_writes_.end(),
                          [&](const auto& waiting) { return waiting->continues(*file, offset); });
  if (run == waiting_writes_.end()) {
    waiting_writes_.push_back(std::make_unique<IoRun>(IoRun::Kind::kWrite, file, offset));
    run = std::prev(waiting_writes_.end());
  }
  (*run)->add(piece, std::move(done));
  waiting_bytes_ += from.size();
  if (waiting_bytes_ >= kWaitingBytesMax) {
    release_waiting_writes();
  } else if (!uv_is_active(reinterpret_cast<uv_handle_t*>(write_delay_))) {
    // One timer for all that wait: nobody waits longer than the delay, and no write arms it anew.
    const auto delay_ms = std::chrono::duration_cast<std::chrono::milliseconds>(kWriteDelay).count();
    uv_update_time(write_delay_->loop);
    uv_timer_start(
        write_delay_, [](uv_timer_t* timer) { static_cast<BatchingDisk*>(timer->data)->release_waiting_writes(); },
        static_cast<std::uint64_t>(delay_ms), 0);
  }
}

void BatchingDisk::flush() { release_waiting_writes(); }

void BatchingDisk::release_waiting_writes() {
  uv_timer_stop(write_delay_);
  if (waiting_writes_.empty()) return;
  for (auto& run : waiting_writes_) ready_.push_back(std::move(run));
  waiting_writes_.clear();
  waiting_bytes_ = 0;
  wake();
}

void BatchingDisk::queue(std::unique_ptr<IoRun> run) {
  ready_.push_back(std::move(run));
  wake();
}

void BatchingDisk::wake() {
  // Runs before the loop sleeps, after every callback of this turn, so that a turn costs one submission.
  uv_prepare_start(end_of_turn_, [](uv_prepare_t* prepare) { static_cast<BatchingDisk*>(prepare->data)->dispatch(); });
}

void BatchingDisk::dispatch() {
  uv_prepare_stop(end_of_turn_);
  std::vector<std::unique_ptr<IoRun>> without_work;
  while (!ready_.empty() && runs_in_flight_ < runs_in_flight_max_) {
    std::unique_ptr<IoRun> run = std::move(ready_.front());
    ready_.pop_front();
    if (run->ended()) {
      without_work.push_back(std::move(run));
      continue;
    }
    ++runs_in_flight_;
    start(std::move(run));
  }
  submit();
  for (auto& run : without_work) run->run_callbacks();
}

void BatchingDisk::handle_ended(std::unique_ptr<IoRun> run) {
  --runs_in_flight_;
  if (!ready_.empty()) wake();
  run->run_callbacks();
}

}  // namespace weightcast
