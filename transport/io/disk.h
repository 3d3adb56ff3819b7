#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "transport/io/buffer.h"
#include "transport/io/event_loop.h"

namespace weightcast {

enum class DiskBackend { kAuto, kIoUring, kThreadPool };

/// Reads and writes at offsets, without blocking the loop. io_uring where the kernel allows it, else a thread pool;
/// which one is decided once, at run time, and logged. Loop thread only; callbacks run on the loop, never from inside
/// the call. A buffer belongs to the operation until its callback. Order between operations is not kept: whoever
/// needs it waits for the callback. Short reads and writes are completed here; end of file before the length is
/// kCorrupt, a full disk kNoSpace, everything else kIo.
class Disk {
 public:
  using Done = std::function<void(Status)>;

  /// Errors: kUnsupported when kIoUring was asked for and the kernel refuses.
  [[nodiscard]] static Result<std::unique_ptr<Disk>> open(EventLoop& loop, DiskBackend backend);
  virtual ~Disk() = default;

  [[nodiscard]] virtual DiskBackend backend() const = 0;

  virtual void read(int fd, std::uint64_t offset, MutableBytes into, Done done) = 0;
  virtual void write(int fd, std::uint64_t offset, Bytes from, Done done) = 0;
  /// fdatasync.
  virtual void sync(int fd, Done done) = 0;
};

}  // namespace weightcast
