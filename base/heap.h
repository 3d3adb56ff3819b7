#pragma once

#include <malloc.h>

namespace weightcast {

/// What a daemon asks of glibc's allocator, and a bench that measures what one holds. Chunks come and go: with the
/// allocator's own 128 KiB the heap's end is returned and faulted in again many times a second; 16 MiB are a fraction
/// of what a relay may keep. It also keeps glibc from raising the size from which a block is given back when it is
/// freed.
inline void set_up_heap() { ::mallopt(M_TRIM_THRESHOLD, 16 << 20); }

}  // namespace weightcast
