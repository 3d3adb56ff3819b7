#pragma once

#include <malloc.h>

#include <cstddef>

namespace weightcast {

/// Sets glibc's allocator up for a daemon, or for a bench that measures a daemon's memory. A daemon allocates and frees
/// chunks all the time. With the default threshold of 128 KiB, glibc returns the end of the heap and faults it in again
/// many times a second. 16 MiB are a fraction of what a relay may keep. A fixed threshold also stops glibc from raising
/// the size from which a freed block goes back at once, which is 128 KiB, too: below 4 MiB are the lists of a step's
/// changes, of which each step makes tens of megabytes anew.
inline void set_up_heap() {
  ::mallopt(M_TRIM_THRESHOLD, 16 << 20);
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
}

/// Gives the kernel back what lies free between blocks in use, if it is more than `free_bytes_max`. Returns whether it
/// did. Takes milliseconds. A burst of handshakes leaves twice as much free as the connections go on to use.
inline bool return_free_memory(std::size_t free_bytes_max) {
  if (::mallinfo2().fordblks <= free_bytes_max) return false;
  ::malloc_trim(0);
  return true;
}

}  // namespace weightcast
