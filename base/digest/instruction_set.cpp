#include "base/digest/instruction_set.h"

#include <array>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weightcast {
namespace {

#if defined(__x86_64__)
/// GCC 12's __builtin_cpu_supports() does not know AMX.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBfloat16 = 1U << 22;
  constexpr unsigned kTiles = 1U << 24;
  return (d & kBfloat16) != 0 && (d & kTiles) != 0;
}

InstructionSet set_of_processor() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("popcnt");
  if (!avx2) return InstructionSet::kBaseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return InstructionSet::kAvx2;
  if (!__builtin_cpu_supports("avx512vbmi2")) return InstructionSet::kAvx512;
  return has_amx() ? InstructionSet::kAmx : InstructionSet::kAvx512Vbmi2;
}
#else
InstructionSet set_of_processor() { return InstructionSet::kBaseline; }
#endif

constexpr std::array<std::string_view, 5> kNames = {"baseline", "avx2", "avx512", "avx512vbmi2", "amx"};

}  // namespace

std::string_view to_string(InstructionSet set) { return kNames.at(static_cast<std::size_t>(set)); }

InstructionSet at_most(InstructionSet set, std::string_view name) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(set); ++i) {
    if (kNames.at(i) == name) return static_cast<InstructionSet>(i);
  }
  return set;
}

InstructionSet instruction_set() {
  static const InstructionSet chosen = [] {
    const char* const named = std::getenv("WEIGHTCAST_KERNELS");
    return at_most(set_of_processor(), named != nullptr ? named : "");
  }();
  return chosen;
}

}  // namespace weightcast
