#include "trainer/optimiser/adamw_loops.h"

namespace weightcast {

AdamWKernels adamw_kernels_avx2() { return adamw_kernels_of_this_file(); }

}  // namespace weightcast
