#include <vector>

#include "base/digest/instruction_set.h"
#include "patch/kernels/kernels.h"

namespace weightcast {

std::span<const Kernels* const> available_kernels() {
  static const std::vector<const Kernels*> available = [] {
    std::vector<const Kernels*> found{&scalar_kernels()};
#if defined(WEIGHTCAST_KERNELS_X86)
    if (instruction_set() >= InstructionSet::kAvx2) found.push_back(&avx2_kernels());
    if (instruction_set() >= InstructionSet::kAvx512Vbmi2) found.push_back(&avx512_kernels());
#endif
    return found;
  }();
  return available;
}

const Kernels& best_kernels() { return *available_kernels().back(); }

}  // namespace weightcast
