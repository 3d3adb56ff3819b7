#include "transport/io/disk/disk.h"

#include <utility>

#include "transport/io/disk/disk_backends.h"
#include "transport/io/log.h"

namespace weightcast {

Result<std::unique_ptr<Disk>> Disk::open(UvLoop& loop, DiskBackend backend) {
  if (backend != DiskBackend::kThreadPool) {
    Result<std::unique_ptr<Disk>> uring = open_uring_disk(loop);
    if (uring.has_value()) {
      log_info("disk: io_uring");
      return uring;
    }
    if (backend == DiskBackend::kIoUring) return uring;
    log_info("disk: thread pool, because io_uring is not to be had ({})", uring.error().detail);
  } else {
    log_info("disk: thread pool, as configured");
  }
  return open_thread_disk(loop);
}

Disk::Done Disk::joint(std::size_t count, Done done) {
  if (count == 1) return done;
  struct Joint {
    std::size_t left;
    Status status;
    Done done;
  };
  return [joint = std::make_shared<Joint>(count, Status{}, std::move(done))](const Status& status) {
    if (!status.has_value()) joint->status = status;
    if (--joint->left == 0) joint->done(joint->status);
  };
}

}  // namespace weightcast
