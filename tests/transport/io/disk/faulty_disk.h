#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "transport/io/disk/disk.h"

namespace weightcast {

/// A disk that fails one write: the one after the next `operations`.
class FaultyDisk final : public Disk {
 public:
  explicit FaultyDisk(std::unique_ptr<Disk> disk) : disk_(std::move(disk)) {}

  void fail_after(unsigned operations, Errc code) { fault_ = {operations, code}; }

  [[nodiscard]] DiskBackend backend() const override { return disk_->backend(); }
  void read(FileRef file, std::uint64_t offset, MutableBytes into, Done done) override {
    disk_->read(std::move(file), offset, into, std::move(done));
  }
  void write(FileRef file, std::uint64_t offset, Bytes from, Done done) override {
    if (fault_ && fault_->first-- == 0) {
      const Errc code = fault_->second;
      fault_.reset();
      // Half of it arrives, as on a disk that fills up.
      return disk_->write(std::move(file), offset, from.first(from.size() / 2),
                          [code, done = std::move(done)](const Status&) { done(fail(code, Op::kWrite, "injected")); });
    }
    disk_->write(std::move(file), offset, from, std::move(done));
  }
  void flush() override { disk_->flush(); }
  void sync(FileRef file, Done done) override { disk_->sync(std::move(file), std::move(done)); }

 private:
  std::unique_ptr<Disk> disk_;
  std::optional<std::pair<unsigned, Errc>> fault_;
};

}  // namespace weightcast
