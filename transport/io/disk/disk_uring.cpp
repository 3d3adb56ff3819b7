#include <fmt/format.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <uv.h>

#include <array>
#include <cstring>

#include "base/files/unique_fd.h"
#include "transport/io/disk/disk_backends.h"
#include "transport/io/disk/disk_batching.h"
#include "transport/io/uv_loop.h"

namespace weightcast {
namespace {

constexpr unsigned kRunsInFlightMax = 64;

/// A ring that exists as long as its owner.
class Ring {
 public:
  Ring() = default;
  ~Ring() {
    if (open_) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  Status open() {
    if (const int rc = io_uring_queue_init(kRunsInFlightMax, &ring_, 0); rc < 0) return unsupported(-rc, "setup");
    open_ = true;
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return fail(Errc::kUnsupported, Op::kOpen, "io_uring: cannot ask for its operations");
    bool complete = true;
    for (const int op : {IORING_OP_READV, IORING_OP_WRITEV, IORING_OP_FSYNC}) {
      complete = complete && io_uring_opcode_supported(probe, op) != 0;
    }
    io_uring_free_probe(probe);
    if (!complete) return fail(Errc::kUnsupported, Op::kOpen, "io_uring: this kernel's lacks an operation we need");
    return {};
  }

  [[nodiscard]] io_uring* get() { return &ring_; }

  static Error unsupported(int error_number, std::string_view what) {
    return fail(Errc::kUnsupported, Op::kOpen, fmt::format("io_uring {}: {}", what, std::strerror(error_number)));
  }

 private:
  io_uring ring_{};
  bool open_ = false;
};

class UringDisk final : public BatchingDisk {
 public:
  /// Takes over `watch`, which watches `completions`.
  UringDisk(UvLoop& loop, std::unique_ptr<Ring> ring, UniqueFd completions, uv_poll_t* watch)
      : BatchingDisk(loop, kRunsInFlightMax),
        ring_(std::move(ring)),
        completions_(std::move(completions)),
        poll_(watch) {
    poll_->data = this;
    WC_CHECK(uv_poll_start(poll_, UV_READABLE, [](uv_poll_t* poll, int, int) {
               static_cast<UringDisk*>(poll->data)->handle_completions();
             }) == 0);
    // The loop lives for what is in flight, not for a store that rests.
    uv_unref(reinterpret_cast<uv_handle_t*>(poll_));
  }

  ~UringDisk() override {
    // The kernel still writes into buffers that callers will free.
    while (in_flight_ > 0) {
      io_uring_submit_and_wait(ring_->get(), 1);
      for (io_uring_cqe* cqe = nullptr; io_uring_peek_cqe(ring_->get(), &cqe) == 0;) take(cqe);
    }
    uv_poll_stop(poll_);
    uv_close(reinterpret_cast<uv_handle_t*>(poll_),
             [](uv_handle_t* handle) { delete reinterpret_cast<uv_poll_t*>(handle); });
  }

  [[nodiscard]] DiskBackend backend() const override { return DiskBackend::kIoUring; }

 private:
  void start(std::unique_ptr<IoRun> run) override {
    if (in_flight_++ == 0) uv_ref(reinterpret_cast<uv_handle_t*>(poll_));
    prepare(std::move(run));
  }

  void prepare(std::unique_ptr<IoRun> run) {
    io_uring_sqe* sqe = io_uring_get_sqe(ring_->get());
    if (sqe == nullptr) {
      io_uring_submit(ring_->get());
      sqe = io_uring_get_sqe(ring_->get());
    }
    WC_CHECK(sqe != nullptr);  // no more runs are in flight than the queue has places
    const std::span<const iovec> pieces = run->pieces();
    const auto count = static_cast<unsigned>(pieces.size());
    switch (run->kind()) {
      case IoRun::Kind::kRead: io_uring_prep_readv(sqe, run->fd(), pieces.data(), count, run->offset()); break;
      case IoRun::Kind::kWrite: io_uring_prep_writev(sqe, run->fd(), pieces.data(), count, run->offset()); break;
      case IoRun::Kind::kSync: io_uring_prep_fsync(sqe, run->fd(), IORING_FSYNC_DATASYNC); break;
    }
    io_uring_sqe_set_data(sqe, run.release());
  }

  void submit() override {
    // Short of memory the kernel takes none or some; the rest stays queued and is offered again.
    if (io_uring_submit(ring_->get()) < 0 || io_uring_sq_ready(ring_->get()) > 0) wake();
  }

  std::unique_ptr<IoRun> take(io_uring_cqe* cqe) {
    std::unique_ptr<IoRun> run(static_cast<IoRun*>(io_uring_cqe_get_data(cqe)));
    run->handle_result(cqe->res);
    io_uring_cqe_seen(ring_->get(), cqe);
    --in_flight_;
    return run;
  }

  void handle_completions() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(completions_.get(), &count, sizeof count);
    // A callback may queue more, which start in this turn's end, so what is peeked here is finite.
    for (io_uring_cqe* cqe = nullptr; io_uring_peek_cqe(ring_->get(), &cqe) == 0;) {
      std::unique_ptr<IoRun> run = take(cqe);
      if (run->ended()) {
        handle_ended(std::move(run));
      } else {
        ++in_flight_;
        prepare(std::move(run));
      }
    }
    if (io_uring_sq_ready(ring_->get()) > 0) submit();
    if (in_flight_ == 0) uv_unref(reinterpret_cast<uv_handle_t*>(poll_));
  }

  std::unique_ptr<Ring> ring_;
  UniqueFd completions_;
  uv_poll_t* poll_;  // freed by libuv's close callback
  std::size_t in_flight_ = 0;
};

}  // namespace

Result<std::unique_ptr<Disk>> open_uring_disk(UvLoop& loop) {
  auto ring = std::make_unique<Ring>();
  WC_TRY(ring->open());
  UniqueFd completions(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!completions.valid()) return Ring::unsupported(errno, "completions");
  if (const int rc = io_uring_register_eventfd(ring->get(), completions.get()); rc < 0) {
    return Ring::unsupported(-rc, "completions");
  }
  // Fails where this user watches too many descriptors already.
  auto poll = std::make_unique<uv_poll_t>();
  if (const int rc = uv_poll_init(loop.uv(), poll.get(), completions.get()); rc != 0) {
    return Ring::unsupported(-rc, "completions");
  }
  return std::unique_ptr<Disk>(
      std::make_unique<UringDisk>(loop, std::move(ring), std::move(completions), poll.release()));
}

}  // namespace weightcast
