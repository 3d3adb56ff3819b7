#include "patch/interop/hf_sparse.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <unordered_map>

#include "patch/codec/byte_io.h"
#include "patch/kernels/kernels.h"
#include "patch/snapshot/mapped_file.h"
#include "patch/snapshot/write_file.h"

namespace weightcast {
namespace {

constexpr std::string_view kIndices = ".indices";
constexpr std::string_view kValues = ".values";
constexpr std::size_t kIndexBytes = 4;
constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 31;

Error corrupt(std::string_view file, std::string_view what) {
  return fail(Errc::kCorrupt, Op::kDecode, fmt::format("{}: {}; write it again", file, what));
}

/// Element width of a dtype that has whole bytes, else 0.
unsigned element_bytes(std::string_view dtype) {
  const unsigned bits = dtype_bits(dtype);
  return bits % 8 == 0 ? bits / 8 : 0;
}

struct Sparse {
  std::vector<std::byte> indices, values;
};

/// `width` is 1, 2, 4 or 8.
Sparse sparse_of(unsigned width, Bytes before, Bytes after) {
  const Kernels& kernels = best_kernels();
  ChunkChanges changed;
  Sparse sparse;
  ByteWriter indices(sparse.indices), values(sparse.values);
  const std::size_t elements = after.size() / width;
  for (std::size_t begin = 0; begin < elements; begin += kChunkCells) {
    const std::size_t count = std::min(kChunkCells, elements - begin);
    const std::byte* new_cells = after.data() + begin * width;
    const std::size_t changes = kernels.diff(width, before.data() + begin * width, new_cells, count, changed);
    for (std::size_t i = 0; i < changes; ++i) {
      indices.fixed(std::uint32_t(begin + changed[i]));
      values.bytes({new_cells + std::size_t{changed[i]} * width, width});
    }
  }
  return sparse;
}

}  // namespace

Result<std::vector<HfSparseTensor>> read_hf_sparse(Bytes file, std::string_view name, HfSparseInfo& info) {
  WC_ASSIGN(const SafetensorsHeader header, parse_safetensors_header(file, file.size(), name));
  const auto sparse = header.metadata.find("sparse");
  if (sparse == header.metadata.end() || (sparse->second != "true" && sparse->second != "True")) {
    return corrupt(name, "its metadata does not say that it is sparse");
  }
  info = {};
  const auto given = header.metadata.find("model_version");
  const auto version = given == header.metadata.end() ? std::nullopt : version_of_digits(given->second);
  if (!version) return corrupt(name, "its metadata's model_version is no number");
  info.version = *version;
  info.bytes = file.size();
  struct Halves {
    const TensorInfo* indices = nullptr;
    const TensorInfo* values = nullptr;
  };
  std::map<std::string, Halves> halves;
  for (const TensorInfo& tensor : header.tensors) {
    const std::string_view whole = tensor.name;
    if (whole.ends_with(kIndices)) {
      halves[std::string(whole.substr(0, whole.size() - kIndices.size()))].indices = &tensor;
    } else if (whole.ends_with(kValues)) {
      halves[std::string(whole.substr(0, whole.size() - kValues.size()))].values = &tensor;
    } else {
      return corrupt(name, fmt::format("tensor {} is neither indices nor values", quoted_name(whole)));
    }
  }
  std::vector<HfSparseTensor> tensors;
  for (const auto& [tensor, half] : halves) {
    if (half.indices == nullptr || half.values == nullptr) {
      return corrupt(name, fmt::format("tensor {} has only one of indices and values", quoted_name(tensor)));
    }
    const unsigned width = element_bytes(half.values->dtype);
    if (half.indices->dtype != "I32" || width == 0 ||
        half.indices->size_bytes / kIndexBytes != half.values->size_bytes / width) {
      return corrupt(
          name, fmt::format("the indices of tensor {} are not I32, or not as many as its values", quoted_name(tensor)));
    }
    const auto bytes_of = [&](const TensorInfo& part) {
      return file.subspan(std::size_t(part.offset_bytes), std::size_t(part.size_bytes));
    };
    tensors.push_back({tensor, half.values->dtype, bytes_of(*half.indices), bytes_of(*half.values)});
    info.changed_elements += half.indices->size_bytes / kIndexBytes;
  }
  info.changed_tensors = tensors.size();
  return tensors;
}

Status apply_hf_sparse_tensor(const HfSparseTensor& change, MutableBytes cells) {
  const std::size_t width = element_bytes(change.dtype);
  if (width == 0 || cells.size() % width != 0 || change.indices.size() % kIndexBytes != 0 ||
      change.values.size() != change.indices.size() / kIndexBytes * width) {
    return fail(
        Errc::kInvalidArgument, Op::kDecode,
        fmt::format("tensor {} of dtype {}: {} bytes of indices and {} of values do not fit its {} bytes",
                    quoted_name(change.name), change.dtype, change.indices.size(), change.values.size(), cells.size()));
  }
  const std::size_t elements = cells.size() / width;
  std::int64_t last = -1;
  for (std::size_t i = 0; i < change.indices.size() / kIndexBytes; ++i) {
    const std::uint32_t index = load_u32(change.indices.data() + i * kIndexBytes);
    if (index >= elements) {
      return corrupt(quoted_name(change.name),
                     fmt::format("index {} lies outside of its {} elements", index, elements));
    }
    if (std::int64_t{index} <= last) return corrupt(quoted_name(change.name), "its indices do not grow");
    last = index;
    std::memcpy(cells.data() + index * width, change.values.data() + i * width, width);
  }
  return {};
}

Result<HfSparseInfo> export_hf_sparse(FileSystem& files, const SnapshotLayout& before, const ByteSource& base,
                                      const SnapshotLayout& after, const ByteSource& result, Version version,
                                      const std::string& path) {
  WC_ASSIGN(const std::vector<TensorPair> pairs, pair_tensors(before, after));
  HfSparseInfo info;
  info.version = version;
  std::vector<TensorInfo> tensors;
  std::vector<std::vector<std::byte>> parts;
  std::vector<std::byte> before_scratch, after_scratch;
  std::uint64_t elements = 0;
  for (const TensorPair& pair : pairs) {
    const auto size = std::size_t(pair.after.size_bytes);
    const unsigned width = element_bytes(pair.after.dtype);
    WC_ASSIGN(const Bytes old_bytes, base.view(pair.before.offset_bytes, size, before_scratch));
    WC_ASSIGN(const Bytes new_bytes, result.view(pair.after.offset_bytes, size, after_scratch));
    if (width > 0) elements += size / width;
    if (std::equal(old_bytes.begin(), old_bytes.end(), new_bytes.begin())) continue;
    if (width == 0 || width > 8 || size / width > kElementsMax) {
      return fail(Errc::kUnsupported, Op::kEncode,
                  fmt::format("tensor {} of dtype {} changed, and 32-bit indices of whole elements cannot say how; use "
                              "another format",
                              quoted_name(pair.after.name), pair.after.dtype));
    }
    Sparse sparse = sparse_of(width, old_bytes, new_bytes);
    const std::uint64_t count = sparse.indices.size() / kIndexBytes;
    tensors.push_back({pair.after.name + std::string(kIndices), "I32", {count}, 0, sparse.indices.size()});
    tensors.push_back({pair.after.name + std::string(kValues), pair.after.dtype, {count}, 0, sparse.values.size()});
    parts.push_back(std::move(sparse.indices));
    parts.push_back(std::move(sparse.values));
    info.changed_elements += count;
    ++info.changed_tensors;
  }
  const double share = elements > 0 ? 1 - double(info.changed_elements) / double(elements) : 1;
  WC_ASSIGN(const SafetensorsLayout layout,
            lay_out_safetensors(tensors, {{"sparse", "true"},
                                          {"model_version", fmt::format("{}", version.value)},
                                          {"sparsity", fmt::format("{:.6f}", share)},
                                          {"changed_params", fmt::format("{}", info.changed_elements)}}));
  const std::vector<Bytes> data(parts.begin(), parts.end());
  WC_TRY(write_new_file(files, path, [&](FileWriter& out) { return write_safetensors(out, layout, data); }));
  info.bytes = layout.file_bytes;
  return info;
}

Result<HfSparseInfo> import_hf_sparse(FileSystem& files, const std::string& path, const SnapshotLayout& before,
                                      const ByteSource& base, ByteTarget& target) {
  WC_ASSIGN(const MappedFile file, MappedFile::open(files, path));
  HfSparseInfo info;
  WC_ASSIGN(const std::vector<HfSparseTensor> changes, read_hf_sparse(file.bytes(), path, info));
  std::unordered_map<std::string_view, const HfSparseTensor*> by_name;
  for (const HfSparseTensor& change : changes) by_name[change.name] = &change;
  std::size_t found = 0;
  for (const TensorInfo& tensor : before.tensors) {
    const auto change = by_name.find(tensor.name);
    found += change != by_name.end() && change->second->dtype == tensor.dtype;
  }
  if (found != changes.size()) {
    return fail(
        Errc::kInvalidArgument, Op::kDecode,
        fmt::format("{}: {} of its tensors are not in the base, or there in another dtype; it is for another model",
                    path, changes.size() - found));
  }
  const auto find_edit = [&](const TensorInfo& tensor) -> TensorEdit {
    const auto change = by_name.find(tensor.name);
    if (change == by_name.end()) return {};
    return [&entry = *change->second](MutableBytes cells) { return apply_hf_sparse_tensor(entry, cells); };
  };
  WC_TRY(write_edited(before, base, find_edit, target));
  WC_TRY(file.check_unchanged());
  return info;
}

}  // namespace weightcast
