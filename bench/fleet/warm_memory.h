#pragma once

#include <cstdint>

#include "base/result.h"

namespace weightcast::bench {

/// Free memory that the host really has given to us, for as long as this lives.
///
/// A virtual machine may return free memory to its host in blocks of 2 MiB (free page reporting), and get it back page
/// by page on first touch: at 4 CPU s/GiB where we measured it, several times what a node spends on receiving, checking
/// and storing. That would drown what is measured, and says nothing about the program. This touches memory and frees
/// all of it but one page in every 128 KiB: nothing that large is free then, so nothing is returned, and what a page
/// cache asks for comes from there.
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
