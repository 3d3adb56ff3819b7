#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/file_system.h"
#include "base/result.h"
#include "base/time.h"
#include "base/units.h"
#include "transport/io/buffer.h"

namespace weightcast {

class UvLoop;

enum class DiskBackend { kAuto, kIoUring, kThreadPool };

[[nodiscard]] std::string_view to_string(DiskBackend backend);

/// Reads and writes at offsets, without blocking the loop. io_uring where the kernel allows it, else a thread pool;
/// which one is decided once, at run time, and logged. Loop thread only; callbacks run on the loop, never from inside
/// the call. A buffer belongs to the operation until its callback. Order between operations is not kept: whoever
/// needs it waits for the callback. An operation keeps its file open until then. Short reads and writes are completed
/// here; end of file before the length is kCorrupt, a full disk kNoSpace, everything else kIo.
///
/// Writes wait up to kWriteDelay, or for kWaitingBytesMax of them, and then go to the kernel together, those that touch
/// in a file as one: waking a kernel worker, and being woken by it, costs more than copying the bytes of a small chunk.
/// If a run of joined writes fails, each of its writes fails, also those whose bytes had arrived.
///
/// Destroying it waits for what the kernel has begun and drops the callbacks. Not from inside a callback.
class Disk {
 public:
  using Done = std::function<void(Status)>;

  /// For `count` operations that end as one, at least one: each calls what this returns, and the last to end calls
  /// `done`, with an error if one had one. For a single one `done` itself.
  [[nodiscard]] static Done joint(std::size_t count, Done done);

  static constexpr Duration kWriteDelay = std::chrono::milliseconds(50);
  static constexpr std::size_t kWaitingBytesMax = 512 * kKiB;

  /// Errors: kUnsupported when kIoUring was asked for and the kernel refuses.
  [[nodiscard]] static Result<std::unique_ptr<Disk>> open(UvLoop& loop, DiskBackend backend);
  virtual ~Disk() = default;

  [[nodiscard]] virtual DiskBackend backend() const = 0;

  virtual void read(FileRef file, std::uint64_t offset, MutableBytes into, Done done) = 0;
  virtual void write(FileRef file, std::uint64_t offset, Bytes from, Done done) = 0;
  /// Starts the writes that still wait for neighbours: the caller has nothing more for now.
  virtual void flush() = 0;
  /// fdatasync: covers the writes whose callbacks have run.
  virtual void sync(FileRef file, Done done) = 0;
};

}  // namespace weightcast
