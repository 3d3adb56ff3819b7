#include <cstdlib>
#include <string_view>
#include <vector>

#include "patch/kernels/kernels.h"

namespace weightcast {

#if !defined(WEIGHTCAST_KERNELS_X86)
const Kernels* avx2_kernels() { return nullptr; }
const Kernels* avx512_kernels() { return nullptr; }
#endif

std::span<const Kernels* const> available_kernels() {
  static const std::vector<const Kernels*> available = [] {
    std::vector<const Kernels*> found{&scalar_kernels()};
    for (const Kernels* kernels : {avx2_kernels(), avx512_kernels()}) {
      if (kernels != nullptr) found.push_back(kernels);
    }
    return found;
  }();
  return available;
}

const Kernels& best_kernels() {
  static const Kernels* const chosen = [] {
    const char* wanted = std::getenv("WEIGHTCAST_KERNELS");
    for (const Kernels* kernels : available_kernels()) {
      if (wanted != nullptr && kernels->name == std::string_view(wanted)) return kernels;
    }
    return available_kernels().back();
  }();
  return *chosen;
}

}  // namespace weightcast
