#pragma once

/// What makes this build of the tests several times slower. A loop over all places where something may happen takes a
/// part of them there, if another build takes all.

namespace weightcast::test {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kUnderAddressSanitizer = true;
#else
inline constexpr bool kUnderAddressSanitizer = false;
#endif
#ifdef __SANITIZE_THREAD__
inline constexpr bool kUnderThreadSanitizer = true;
#else
inline constexpr bool kUnderThreadSanitizer = false;
#endif

}  // namespace weightcast::test
