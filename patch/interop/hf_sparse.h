#pragma once

#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/ids.h"
#include "patch/interop/edit_tensors.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast {

// Hugging Face's sparse safetensors (TRL's delta weight sync): one safetensors file.
//   NAME.indices    for each changed tensor NAME: flat element indices (I32)
//   NAME.values     the new elements, in the tensor's dtype (BF16 there, any whole-byte dtype here)
//   __metadata__    "sparse": "true", "model_version", "sparsity" (share of unchanged elements) and "changed_params"
//                   (how many changed)
// The format has no checksums, so damage inside a file goes unnoticed.

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

/// Reads a whole file, which errors call `name`. Errors: those of parse_safetensors_header(); kCorrupt (the metadata
/// does not say that the file is sparse; a tensor lacks indices or values; they do not fit each other).
Result<std::vector<HfSparseTensor>> read_hf_sparse(Bytes file, std::string_view name, HfSparseInfo& info);

/// Turns the old `cells` of a tensor of the change's dtype into the new ones. Errors: kInvalidArgument where dtype,
/// indices, values and cells do not fit each other; kCorrupt where indices do not grow or leave the tensor. After
/// kCorrupt `cells` hold anything.
Status apply_hf_sparse_tensor(const HfSparseTensor& change, MutableBytes cells);

/// Writes `path`, which appears when it is complete. Takes as much memory as the file. Errors: those of pair_tensors();
/// kUnsupported (elements that are not whole bytes; a changed element beyond 2^31); fail_errno().
Result<HfSparseInfo> export_hf_sparse(FileSystem& files, const SnapshotLayout& before, const ByteSource& base,
                                      const SnapshotLayout& after, const ByteSource& result, Version version,
                                      const std::string& path);

/// Applies the file to the base, and writes the result to `target`. Errors: those of read_hf_sparse() and
/// apply_hf_sparse_tensor(); kInvalidArgument (the base lacks a tensor, or has it in another dtype); those of the
/// streams.
Result<HfSparseInfo> import_hf_sparse(FileSystem& files, const std::string& path, const SnapshotLayout& before,
                                      const ByteSource& base, ByteTarget& target);

}  // namespace weightcast
