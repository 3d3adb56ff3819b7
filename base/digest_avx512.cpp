#include "base/digest_kernels.h"

namespace weightcast {

DigestKernels digest_kernels_avx512() { return digest_kernels_of_this_file(); }

}  // namespace weightcast
