#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/result.h"

namespace weightcast::client {

/// A memfd, mapped for writing: the memory in which a snapshot is filled in place. It has no name, so nothing of it
/// remains when the process is killed. It is sealed at its size, so that whoever reads or maps it is safe from
/// SIGBUS.
class Region {
 public:
  /// Memory is taken when it is first written. Errors: kNoSpace, kIo.
  [[nodiscard]] static Result<std::unique_ptr<Region>> create(std::uint64_t size_bytes);
  /// Maps what another process made by create(). `fd` stays the caller's. Errors: kInvalidArgument (not a region).
  [[nodiscard]] static Result<std::unique_ptr<Region>> attach(int fd);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// Takes the memory now, so that no write pays for it. Errors: kNoSpace.
  [[nodiscard]] Status populate();

  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  Region(int fd, std::uint64_t size_bytes) : fd_(fd), size_bytes_(size_bytes) {}
  Status map();

  const int fd_;
  const std::uint64_t size_bytes_;
  char* data_ = nullptr;
};

}  // namespace weightcast::client
