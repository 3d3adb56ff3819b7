#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/file_system.h"
#include "base/result.h"
#include "base/time.h"
#include "base/units.h"
#include "base/words.h"
#include "transport/io/buffer.h"

namespace weightcast {

class UvLoop;

enum class DiskBackend { kAuto, kIoUring, kThreadPool };
constexpr Words<3> words_of(DiskBackend) { return {"auto", "io_uring", "threads"}; }

/// Reads and writes at offsets, without blocking the loop: by io_uring where the kernel allows it, else by pool
/// threads. open() decides that once, and logs it. Loop thread only. Callbacks run on the loop, never from inside the
/// call.
///
/// An operation owns its buffer and keeps its file open until its callback. Operations may end in any order; a caller
/// that needs an order waits for callbacks. The disk completes short reads and writes. Errors: kCorrupt (the file ends
/// before the last byte), kNoSpace (the disk is full), kIo (everything else).
///
/// Writes wait up to kWriteDelay, or until kWaitingBytesMax wait. Then they go to the kernel together, and neighbours
/// in a file as one: a wake-up of a kernel worker costs more than the copy of a small chunk. If joined writes fail,
/// each of them fails, also those whose bytes have reached the file.
///
/// The destructor waits for operations in the kernel, and drops all callbacks. Not from inside a callback.
class Disk {
 public:
  using Done = std::function<void(Status)>;

  /// Joins the ends of `count` operations, at least one. Each operation calls the returned function. The last to end
  /// calls `done`, with an error if any had one.
  [[nodiscard]] static Done joint(std::size_t count, Done done);

  static constexpr Duration kWriteDelay = std::chrono::milliseconds(50);
  static constexpr std::size_t kWaitingBytesMax = 512 * kKiB;

  /// Errors: kUnsupported when kIoUring was asked for and the kernel refuses.
  [[nodiscard]] static Result<std::unique_ptr<Disk>> open(UvLoop& loop, DiskBackend backend);
  virtual ~Disk() = default;

  [[nodiscard]] virtual DiskBackend backend() const = 0;

  virtual void read(FileRef file, std::uint64_t offset, MutableBytes into, Done done) = 0;
  virtual void write(FileRef file, std::uint64_t offset, Bytes from, Done done) = 0;
  /// Starts the writes that still wait for neighbours. The caller has no more for now.
  virtual void flush() = 0;
  /// fdatasync: covers the writes whose callbacks have run.
  virtual void sync(FileRef file, Done done) = 0;
};

}  // namespace weightcast
