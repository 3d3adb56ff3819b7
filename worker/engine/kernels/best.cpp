#include <vector>

#include "base/digest/instruction_set.h"
#include "worker/engine/kernels/kernels.h"

namespace weightcast::kernels {

std::span<const Kernels* const> available() {
  static const std::vector<const Kernels*> found = [] {
    std::vector<const Kernels*> here{&plain()};
#if defined(WEIGHTCAST_ENGINE_X86)
    if (instruction_set() >= InstructionSet::kAvx2) here.push_back(&avx2());
    if (instruction_set() >= InstructionSet::kAvx512) here.push_back(&avx512());
    if (instruction_set() >= InstructionSet::kAmx && allow_amx()) here.push_back(&amx());
#endif
    return here;
  }();
  return found;
}

const Kernels& best() { return *available().back(); }

}  // namespace weightcast::kernels
