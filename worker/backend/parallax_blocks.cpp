#include "worker/backend/parallax_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <vector>

#include "base/digest/content_digest.h"
#include "patch/snapshot/safetensors.h"
#include "patch/snapshot/snapshot.h"
#include "patch/snapshot/write_file.h"

namespace weightcast {
namespace {

constexpr std::string_view kCidBegin = "bafkrei";
constexpr std::string_view kDivisible = ".weight";

/// RFC 4648 in small letters, without padding.
std::string base32(std::span<const std::byte> bytes) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz234567";
  std::string text;
  std::uint32_t bits = 0, count = 0;
  for (const std::byte byte : bytes) {
    bits = (bits << 8 | std::to_integer<std::uint32_t>(byte)) & 0xfffff;
    for (count += 8; count >= 5; count -= 5) text += kLetters[bits >> (count - 5) & 31];
  }
  if (count > 0) text += kLetters[bits << (5 - count) & 31];
  return text;
}

bool is_divisible(const TensorInfo& tensor, std::uint64_t block_bytes_max) {
  return tensor.size_bytes > block_bytes_max && !tensor.shape.empty() && tensor.shape[0] > 1 &&
         tensor.name.ends_with(kDivisible) && tensor.size_bytes % tensor.shape[0] == 0;
}

Result<std::string> write_block(FileSystem& files, const SnapshotSource& source, const TensorInfo& part,
                                const std::filesystem::path& blocks) {
  WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(std::span(&part, 1)));
  std::vector<std::byte> bytes(layout.file_bytes);
  std::ranges::copy(std::as_bytes(std::span(layout.header)), bytes.begin());
  WC_TRY(source.read_at(part.offset_bytes, MutableBytes(bytes).subspan(layout.offsets_bytes[0],
                                                                       static_cast<std::size_t>(part.size_bytes))));
  const std::string cid = cid_of(bytes);
  const std::filesystem::path path = blocks / cid;
  if (files.info(path).has_value()) return cid;
  WC_TRY(write_new_file(files, path, [&](FileWriter& out) { return out.write(bytes); }));
  return cid;
}

}  // namespace

std::string cid_of(Bytes data) {
  // CIDv1, raw bytes, SHA-256, 32 bytes of it.
  std::vector<std::byte> cid{std::byte{0x01}, std::byte{0x55}, std::byte{0x12}, std::byte{0x20}};
  const ContentDigest digest = content_digest_of(data);
  cid.insert(cid.end(), digest.bytes.begin(), digest.bytes.end());
  return "b" + base32(cid);
}

Result<ParallaxIndex> write_parallax_blocks(FileSystem& files, const std::filesystem::path& version,
                                            const std::filesystem::path& blocks, std::uint64_t block_bytes_max) {
  if (const Status made = files.make_directory(blocks);
      !made.has_value() && made.error().code != Errc::kAlreadyExists) {
    return made.error();
  }
  WC_ASSIGN(const SnapshotSource source, SnapshotSource::open(files, version.string()));
  ParallaxIndex index;
  for (const TensorInfo& tensor : source.tensors()) {
    if (!is_divisible(tensor, block_bytes_max)) {
      WC_ASSIGN(index[tensor.name], write_block(files, source, tensor, blocks));
      continue;
    }
    const std::uint64_t row_bytes = tensor.size_bytes / tensor.shape[0];
    const std::uint64_t rows_max = std::max<std::uint64_t>(1, block_bytes_max / row_bytes);
    std::uint64_t number = 0;
    for (std::uint64_t row = 0; row < tensor.shape[0]; row += rows_max, ++number) {
      TensorInfo part = tensor;
      part.name = fmt::format("{}_part{}", tensor.name, number);
      part.shape[0] = std::min(rows_max, tensor.shape[0] - row);
      part.offset_bytes = tensor.offset_bytes + row * row_bytes;
      part.size_bytes = part.shape[0] * row_bytes;
      WC_ASSIGN(index[part.name], write_block(files, source, part, blocks));
    }
  }
  WC_TRY(source.check_unchanged());
  return index;
}

Status remove_other_blocks(FileSystem& files, const std::filesystem::path& blocks, const ParallaxIndex& index) {
  std::set<std::string> kept;
  for (const auto& [name, cid] : index) kept.insert(cid);
  WC_ASSIGN(const std::vector<std::string> names, files.list(blocks));
  for (const std::string& name : names) {
    if (!name.starts_with(kCidBegin) || kept.contains(name)) continue;
    WC_TRY(files.remove(blocks / name));
  }
  return {};
}

}  // namespace weightcast
