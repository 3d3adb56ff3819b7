#pragma once

#include <cstdint>

#include "base/result.h"

namespace weightcast::bench {

/// Keeps free memory of a virtual machine backed by its host, while this object lives.
///
/// A virtual machine may return free memory to its host in blocks of 2 MiB (free page reporting), and get it back page
/// by page on first touch. That was measured at 4 CPU s/GiB, several times the cost of receiving, checking and storing.
/// It would dominate the measurement and says nothing about the program. This object touches memory and frees all but
/// one page in every 128 KiB. So no free block is large enough to be returned, and the page cache takes memory from
/// there.
class WarmMemory {
 public:
  /// Warms about `bytes`. Errors: kNoSpace when more than three quarters of what is available was asked for.
  [[nodiscard]] static Result<WarmMemory> make(std::uint64_t bytes);
  WarmMemory(WarmMemory&& other) noexcept;
  WarmMemory& operator=(WarmMemory&&) = delete;
  ~WarmMemory();

 private:
  WarmMemory(void* base, std::uint64_t bytes) : base_(base), bytes_(bytes) {}
  void* base_;
  std::uint64_t bytes_;
};

}  // namespace weightcast::bench
