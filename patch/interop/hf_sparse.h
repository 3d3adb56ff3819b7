#pragma once

#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/ids.h"
#include "patch/interop/edit_tensors.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast {

// Hugging Face's sparse safetensors (TRL's delta weight sync): one safetensors file that holds, for each changed tensor
// NAME, "NAME.indices" (I32: flat element indices) and "NAME.values" (the new elements, in the tensor's dtype; BF16
// there, any whole-byte dtype here), and the metadata "sparse": "true", "model_version", "sparsity" (share of elements
// that did not change) and "changed_params" (how many did). There are no checksums: damage inside of it is not noticed.

struct HfSparseInfo {
  Version version;
  std::size_t changed_tensors = 0;
  std::uint64_t changed_elements = 0;
  std::uint64_t bytes = 0;
};

/// One tensor's change, pointing into the file's bytes.
struct HfSparseTensor {
  std::string name;
  std::string dtype;
  Bytes indices;
  Bytes values;
};

/// Takes a whole file apart. `name` is what errors call it. Errors: those of parse_safetensors_header(); kCorrupt where
/// metadata does not say that it is sparse, a tensor has indices without values or the reverse, or they do not fit.
Result<std::vector<HfSparseTensor>> read_hf_sparse(Bytes file, std::string_view name, HfSparseInfo& info);

/// Makes the old `cells` of a tensor of the change's dtype the new ones. Errors: kCorrupt where indices do not grow or
/// leave the tensor; `cells` then hold anything.
Status apply_hf_sparse_tensor(const HfSparseTensor& change, MutableBytes cells);

/// Writes `path`, which appears when it is complete. Takes memory for the file. Errors: those of pair_tensors();
/// kUnsupported (elements that are not whole bytes; a changed element beyond 2^31); fail_errno().
Result<HfSparseInfo> export_hf_sparse(FileSystem& files, const SnapshotLayout& before, const ByteSource& base,
                                      const SnapshotLayout& after, const ByteSource& result, Version version,
                                      const std::string& path);

/// Writes to `target` what the file makes of the base. Errors: those of read_hf_sparse() and apply_hf_sparse_tensor();
/// kInvalidArgument (a tensor that the base has not, or in another dtype); those of the streams.
Result<HfSparseInfo> import_hf_sparse(FileSystem& files, const std::string& path, const SnapshotLayout& before,
                                      const ByteSource& base, ByteTarget& target);

}  // namespace weightcast
