#include "base/digest/instruction_set.h"
#include "trainer/optimiser/adamw_loops.h"

namespace weightcast {

AdamWKernels adamw_kernels_plain() { return adamw_kernels_of_this_file(); }

const AdamWKernels& adamw_kernels() {
  static const AdamWKernels chosen = [] {
#if defined(WEIGHTCAST_ADAMW_X86)
    if (instruction_set() >= InstructionSet::kAvx2) return adamw_kernels_avx2();
#endif
    return adamw_kernels_plain();
  }();
  return chosen;
}

}  // namespace weightcast
