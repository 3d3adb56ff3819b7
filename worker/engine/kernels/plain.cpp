#define WEIGHTCAST_VECTOR_BYTES 16
#include "worker/engine/kernels/loops.h"

namespace weightcast::kernels {

const Kernels& plain() {
  static constexpr Kernels kKernels = kernels_of_this_file("plain");
  return kKernels;
}

}  // namespace weightcast::kernels
