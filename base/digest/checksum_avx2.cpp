#include "base/digest/checksum_kernels.h"

namespace weightcast {

ChecksumKernels checksum_kernels_avx2() { return checksum_kernels_of_this_file(); }

}  // namespace weightcast
