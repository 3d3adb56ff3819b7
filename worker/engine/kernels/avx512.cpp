#define WEIGHTCAST_VECTOR_BYTES 64
#include "worker/engine/kernels/loops.h"

namespace weightcast::kernels {

const Kernels& avx512() {
  static constexpr Kernels kKernels = kernels_of_this_file("avx512");
  return kKernels;
}

}  // namespace weightcast::kernels
