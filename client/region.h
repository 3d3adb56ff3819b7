#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/result.h"

namespace weightcast::client {

/// A memfd, mapped for writing: the memory in which a snapshot is filled in place. It has no name, so nothing of it
/// remains when the process is killed. It is sealed at its size, so that whoever reads or maps it is safe from
/// SIGBUS. Behind the snapshot it says which publication it is being filled for:
///
///   size_bytes()   the snapshot
///   0 to 63        up to a multiple of 64
///   64             Footer, at the file's end
class Region {
 public:
  /// Memory is taken when it is first written. Errors: kNoSpace, kIo.
  [[nodiscard]] static Result<std::shared_ptr<Region>> create(std::uint64_t size_bytes);
  /// Maps what another process made by create(). `fd` stays the caller's. Errors: kInvalidArgument (not a region).
  [[nodiscard]] static Result<std::shared_ptr<Region>> attach(int fd);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// Takes the memory now, so that no write pays for it. Errors: kNoSpace.
  [[nodiscard]] Status populate();

  /// What it is being filled for, as all processes that map it see it; 0: nobody may write to it now.
  [[nodiscard]] std::uint64_t publication() const;
  void set_publication(std::uint64_t id);

  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  struct Footer;

  Region(int fd, std::uint64_t file_bytes) : fd_(fd), file_bytes_(file_bytes) {}
  Status map();
  [[nodiscard]] Footer* footer() const;

  const int fd_;
  const std::uint64_t file_bytes_;
  std::uint64_t size_bytes_ = 0;
  char* data_ = nullptr;
};

}  // namespace weightcast::client
