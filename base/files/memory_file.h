#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/files/file_system.h"

namespace weightcast {

/// A file that is only read. Every other call fails with kUnsupported.
class ReadOnlyFile : public File {
 public:
  Result<std::size_t> write_at(std::uint64_t, Bytes) final { return refuse(); }
  Result<std::size_t> append(Bytes) final { return refuse(); }
  Status allocate(std::uint64_t) final { return refuse(); }
  Status truncate(std::uint64_t) final { return refuse(); }
  Result<std::optional<std::uint64_t>> next_data(std::uint64_t) final { return refuse(); }
  Status sync_data() final { return refuse(); }
  Status lock() final { return refuse(); }
  Status check_unshared() final { return refuse(); }
  void advise_random() final {}
  Result<std::unique_ptr<Mapping>> map() final { return refuse(); }

 private:
  static Error refuse();
};

/// Bytes of this process as a file. Filled through bytes(), then read, by any number of threads.
class MemoryFile final : public ReadOnlyFile {
 public:
  /// The bytes are not cleared.
  explicit MemoryFile(std::uint64_t size_bytes);
  [[nodiscard]] MutableBytes bytes() const { return {bytes_.get(), size_bytes_}; }

  Result<std::size_t> read_at(std::uint64_t offset, MutableBytes into) override;
  Result<FileInfo> info() override;

 private:
  const std::unique_ptr<std::byte[]> bytes_;
  const std::uint64_t size_bytes_;
};

}  // namespace weightcast
