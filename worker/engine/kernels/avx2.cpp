#define WEIGHTCAST_VECTOR_BYTES 32
#include "worker/engine/kernels/loops.h"

namespace weightcast::kernels {

const Kernels& avx2() {
  static constexpr Kernels kKernels = kernels_of_this_file("avx2");
  return kKernels;
}

}  // namespace weightcast::kernels
