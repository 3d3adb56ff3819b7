#include "worker/engine/kernels/kernels.h"

#if defined(WEIGHTCAST_ENGINE_X86)
#include <cpuid.h>
#endif

namespace weightcast::kernels {

#if defined(WEIGHTCAST_ENGINE_X86)
namespace {

/// GCC 12's __builtin_cpu_supports() does not know AMX.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBfloat16 = 1U << 22;
  constexpr unsigned kTiles = 1U << 24;
  return (d & kBfloat16) != 0 && (d & kTiles) != 0;
}

}  // namespace
#endif

const Kernels& best() {
#if defined(WEIGHTCAST_ENGINE_X86)
  static const Kernels& found = []() -> const Kernels& {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
      return has_amx() && allow_amx() ? amx() : avx512();
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2();
    return plain();
  }();
  return found;
#else
  return plain();
#endif
}

}  // namespace weightcast::kernels
