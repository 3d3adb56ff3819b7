// Arbitrary bytes as a sparse safetensors file: what is not refused changes cells inside its tensors only.
#include "patch/interop/hf_sparse.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  HfSparseInfo info;
  const auto tensors = read_hf_sparse(std::as_bytes(std::span(data, size)), "fuzz", info);
  if (!tensors) {
    WC_CHECK(!tensors.error().detail.empty());
    return 0;
  }
  WC_CHECK(info.changed_tensors == tensors->size());
  for (const HfSparseTensor& tensor : *tensors) {
    std::vector<std::byte> cells(64 * dtype_bits(tensor.dtype) / 8);
    (void)apply_hf_sparse_tensor(tensor, cells);
  }
  return 0;
}
