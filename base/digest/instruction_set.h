#pragma once

#include <string_view>

namespace weightcast {

/// Processor instructions that kernels are compiled for, one file for each. Each set has all of those before it.
enum class InstructionSet {
  kBaseline,     ///< what every processor of its kind has
  kAvx2,         ///< with FMA, BMI and POPCNT
  kAvx512,       ///< F, BW, DQ and VL
  kAvx512Vbmi2,  ///< VBMI2, too
  kAmx,          ///< tiles of BF16; the process must ask the kernel for their registers
};

/// "baseline", "avx2", "avx512", "avx512vbmi2", "amx".
[[nodiscard]] std::string_view to_string(InstructionSet set);

/// The set of that name if it is a smaller one than `set`, else `set`. Pure.
[[nodiscard]] InstructionSet at_most(InstructionSet set, std::string_view name);

/// The greatest set that this process uses: that of the processor, or the smaller one that WEIGHTCAST_KERNELS names.
/// Decided by the first call.
[[nodiscard]] InstructionSet instruction_set();

}  // namespace weightcast
