#include "patch/interop/slime_delta.h"

#include <fmt/format.h>
#include <zstd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "patch/codec/byte_io.h"
#include "patch/snapshot/json_text.h"
#include "patch/snapshot/safetensors.h"
#include "patch/snapshot/snapshot.h"
#include "patch/snapshot/write_file.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kShardName = "model-00000-of-00001.safetensors";
constexpr int kZstdLevel = 1;  // slime's

std::string_view to_string(SlimeEncoding encoding) { return encoding == SlimeEncoding::kXor ? "xor" : "overwrite"; }
std::string_view to_string(SlimeChecksum checksum) {
  return checksum == SlimeChecksum::kXxh3_128 ? "xxh3-128" : "adler32";
}

Error corrupt(std::string_view what) {
  return fail(Errc::kCorrupt, Op::kDecode, fmt::format("a slime delta: {}; write it again", what));
}

std::vector<std::byte> xor_of(Bytes before, Bytes after) {
  std::vector<std::byte> out(after.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = before[i] ^ after[i];
  return out;
}

std::vector<std::byte> overwrite_of(Bytes before, Bytes after) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < after.size(); ++i) count += before[i] != after[i];
  std::vector<std::byte> out, values;
  out.reserve(4 + 5 * count);
  values.reserve(count);
  ByteWriter writer(out);
  writer.fixed(std::uint32_t(count));
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (before[i] == after[i]) continue;
    writer.fixed(std::uint32_t(i));
    values.push_back(after[i]);
  }
  writer.bytes(values);
  return out;
}

/// RFC 1950, section 9.
std::uint32_t adler32(Bytes bytes) {
  constexpr std::uint32_t kModulus = 65521;
  constexpr std::size_t kRun = 5552;  // the sums of as many bytes fit into 32 bits
  std::uint32_t low = 1, high = 0;
  while (!bytes.empty()) {
    const Bytes run = bytes.first(std::min(bytes.size(), kRun));
    for (const std::byte byte : run) {
      low += std::to_integer<std::uint32_t>(byte);
      high += low;
    }
    low %= kModulus;
    high %= kModulus;
    bytes = bytes.subspan(run.size());
  }
  return high << 16 | low;
}

Result<Version> version_of(const nlohmann::json& metadata, const char* key, std::string_view file) {
  const std::string text = metadata.value(key, nlohmann::json()).is_string() ? metadata[key].get<std::string>() : "";
  if (const std::optional<Version> version = version_of_digits(text)) return *version;
  return corrupt(fmt::format("{}: metadata's {} is no number of digits", file, key));
}

/// One changed tensor as it stands in the delta's files.
struct CodedTensor {
  Bytes frame;
  std::string checksum;
};

using CodedTensors = std::map<std::string, CodedTensor, std::less<>>;

Status read_shards(const SnapshotSource& delta, CodedTensors& coded) {
  const std::vector<SnapshotFile>& files = delta.file_table().files();
  for (std::size_t f = 0; f < files.size(); ++f) {
    if (!files[f].name.ends_with(".safetensors")) continue;
    WC_ASSIGN(const Bytes bytes, delta.mapping(f));
    WC_ASSIGN(const SafetensorsHeader header, parse_safetensors_header(bytes, bytes.size(), files[f].name));
    for (const TensorInfo& tensor : header.tensors) {
      const auto checksum = header.metadata.find(tensor.name);
      if (tensor.dtype != "U8" || tensor.shape.size() != 1) {
        return corrupt(fmt::format("{}: tensor {} is no row of bytes", files[f].name, quoted_name(tensor.name)));
      }
      if (checksum == header.metadata.end()) {
        return corrupt(fmt::format("{}: tensor {} has no checksum", files[f].name, quoted_name(tensor.name)));
      }
      coded[tensor.name] = {bytes.subspan(std::size_t(tensor.offset_bytes), std::size_t(tensor.size_bytes)),
                            checksum->second};
    }
  }
  return {};
}

}  // namespace

Result<SlimeIndex> read_slime_index(std::string_view json, std::string_view file) {
  const nlohmann::json root = find_nul(json) ? nlohmann::json() : parse_json(json);
  if (!root.is_object() || !root.contains("metadata") || !root["metadata"].is_object()) {
    return corrupt(fmt::format("{}: it is not JSON with metadata", file));
  }
  if (!root.contains("weight_map") || !root["weight_map"].is_object()) {
    return corrupt(fmt::format("{}: it has no weight_map", file));
  }
  const nlohmann::json& metadata = root["metadata"];
  const auto text = [&](const char* key) {
    const auto found = metadata.find(key);
    return found != metadata.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto unsupported = [&](const char* key, std::string_view known) {
    return fail(Errc::kUnsupported, Op::kDecode,
                fmt::format("{}: its {} is {}; this build reads {}", file, key, quoted_name(text(key)), known));
  };
  SlimeIndex index;
  WC_ASSIGN(index.version, version_of(metadata, "version", file));
  WC_ASSIGN(index.base_version, version_of(metadata, "base_version", file));
  if (text("delta_encoding") == "overwrite") {
    index.encoding = SlimeEncoding::kOverwrite;
  } else if (text("delta_encoding") != "xor") {
    return unsupported("delta_encoding", "xor and overwrite");
  }
  if (text("compression_format") != "zstd") return unsupported("compression_format", "zstd");
  if (text("checksum_format") == "adler32") {
    index.checksum = SlimeChecksum::kAdler32;
  } else if (text("checksum_format") != "xxh3-128") {
    return unsupported("checksum_format", "xxh3-128 and adler32");
  }
  index.empty = root["weight_map"].empty();
  return index;
}

Result<std::vector<std::byte>> encode_slime_tensor(SlimeEncoding encoding, Bytes before, Bytes after) {
  WC_CHECK(before.size() == after.size());
  if (std::equal(before.begin(), before.end(), after.begin())) return std::vector<std::byte>{};
  if (encoding == SlimeEncoding::kOverwrite && after.size() > ~std::uint32_t{0}) {
    return fail(Errc::kUnsupported, Op::kEncode,
                "positions of overwritten bytes end at 4 GiB, and a tensor is larger; use xor");
  }
  const std::vector<std::byte> delta =
      encoding == SlimeEncoding::kXor ? xor_of(before, after) : overwrite_of(before, after);
  std::vector<std::byte> frame(ZSTD_compressBound(delta.size()));
  const std::size_t size = ZSTD_compress(frame.data(), frame.size(), delta.data(), delta.size(), kZstdLevel);
  WC_CHECK(ZSTD_isError(size) == 0);  // the bound is zstd's own
  frame.resize(size);
  return frame;
}

Status apply_slime_tensor(SlimeEncoding encoding, Bytes frame, MutableBytes cells) {
  const bool is_xor = encoding == SlimeEncoding::kXor;
  const unsigned long long claimed = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (claimed == ZSTD_CONTENTSIZE_ERROR) return corrupt("a tensor is no zstd frame");
  if (claimed == ZSTD_CONTENTSIZE_UNKNOWN) return corrupt("a zstd frame does not say how long it is");
  // The longest that the tensor's size allows: nothing longer is allocated.
  if (claimed > (is_xor ? cells.size() : 4 + 5 * std::uint64_t{cells.size()})) {
    return corrupt("a zstd frame is longer than its tensor can need");
  }
  std::vector<std::byte> delta(static_cast<std::size_t>(claimed));
  if (ZSTD_decompress(delta.data(), delta.size(), frame.data(), frame.size()) != delta.size()) {
    return corrupt("a zstd frame is damaged");
  }
  if (is_xor) {
    if (delta.size() != cells.size()) return corrupt("a difference is shorter than its tensor");
    for (std::size_t i = 0; i < cells.size(); ++i) cells[i] ^= delta[i];
    return {};
  }
  const std::uint64_t count = delta.size() < 4 ? 0 : load_u32(delta.data());
  if (delta.size() != 4 + 5 * count) return corrupt("the number of overwritten bytes does not fit its frame");
  const std::byte* values = delta.data() + 4 + 4 * count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t position = load_u32(delta.data() + 4 + 4 * i);
    if (position >= cells.size()) return corrupt("an overwritten byte lies outside of its tensor");
    cells[position] = values[i];
  }
  return {};
}

std::string slime_checksum(SlimeChecksum checksum, Bytes bytes) {
  return checksum == SlimeChecksum::kXxh3_128 ? checksum_of(bytes).hex() : fmt::format("{:08x}", adler32(bytes));
}

Result<SlimeSummary> export_slime_delta(FileSystem& files, const SnapshotLayout& before, const ByteSource& base,
                                        const SnapshotLayout& after, const ByteSource& result, const SlimeIndex& index,
                                        const std::string& directory) {
  WC_ASSIGN(const std::vector<TensorPair> pairs, pair_tensors(before, after));
  std::vector<TensorInfo> tensors;
  std::vector<std::vector<std::byte>> frames;
  SafetensorsMetadata checksums;
  nlohmann::json weight_map = nlohmann::json::object();
  std::vector<std::byte> before_scratch, after_scratch;
  for (const TensorPair& pair : pairs) {
    const auto size = std::size_t(pair.after.size_bytes);
    WC_ASSIGN(const Bytes old_bytes, base.view(pair.before.offset_bytes, size, before_scratch));
    WC_ASSIGN(const Bytes new_bytes, result.view(pair.after.offset_bytes, size, after_scratch));
    WC_ASSIGN(std::vector<std::byte> frame, encode_slime_tensor(index.encoding, old_bytes, new_bytes));
    if (frame.empty()) continue;
    tensors.push_back({pair.after.name, "U8", {frame.size()}, 0, frame.size()});
    frames.push_back(std::move(frame));
    checksums[pair.after.name] = slime_checksum(index.checksum, new_bytes);
    weight_map[pair.after.name] = kShardName;
  }
  const nlohmann::json root = {{"metadata",
                                {{"version", fmt::format("{:06d}", index.version.value)},
                                 {"base_version", fmt::format("{:06d}", index.base_version.value)},
                                 {"delta_encoding", to_string(index.encoding)},
                                 {"compression_format", "zstd"},
                                 {"checksum_format", to_string(index.checksum)}}},
                               {"weight_map", weight_map}};

  SlimeSummary summary;
  summary.path = (fs::path(directory) / fmt::format("weight_v{:06d}", index.version.value)).string();
  summary.changed_tensors = tensors.size();
  NewDirectory made(files, summary.path);
  WC_TRY(made.create());
  if (!tensors.empty()) {
    WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(tensors, checksums));
    const std::vector<Bytes> data(frames.begin(), frames.end());
    WC_TRY(write_new_file(files, made.temporary() / kShardName,
                          [&](FileWriter& out) { return write_safetensors(out, layout, data); }));
    summary.bytes += layout.file_bytes;
  }
  const std::string text = root.dump();
  WC_TRY(write_new_file(files, made.temporary() / kIndexName,
                        [&](FileWriter& out) { return out.write(std::as_bytes(std::span(text))); }));
  summary.bytes += text.size();
  WC_TRY(made.publish());
  return summary;
}

Result<SlimeIndex> import_slime_delta(FileSystem& files, const std::string& directory, const SnapshotLayout& before,
                                      const ByteSource& base, ByteTarget& target) {
  const fs::path index_path = fs::path(directory) / kIndexName;
  WC_ASSIGN(const std::string json, read_file(files, index_path, kSidecarBytesMax));
  WC_ASSIGN(const SlimeIndex index, read_slime_index(json, index_path.native()));

  std::optional<SnapshotSource> delta;  // owns what `coded` points to
  CodedTensors coded;
  if (!index.empty) {
    WC_ASSIGN(delta, SnapshotSource::open(files, directory));
    WC_TRY(read_shards(*delta, coded));
  }
  std::size_t found = 0;
  for (const TensorInfo& tensor : before.tensors) found += coded.contains(tensor.name);
  if (found != coded.size()) {
    return fail(Errc::kInvalidArgument, Op::kDecode,
                fmt::format("{}: {} of its tensors are not in the base; it is for another model", directory,
                            coded.size() - found));
  }
  const auto find_edit = [&](const TensorInfo& tensor) -> TensorEdit {
    const auto change = coded.find(tensor.name);
    if (change == coded.end()) return {};
    return [&, &name = tensor.name, &entry = change->second](MutableBytes cells) -> Status {
      WC_TRY(apply_slime_tensor(index.encoding, entry.frame, cells));
      if (slime_checksum(index.checksum, cells) == entry.checksum) return {};
      return fail(Errc::kCorrupt, Op::kVerify,
                  fmt::format("{}: tensor {} does not get the checksum that the delta gives; the delta is damaged, or "
                              "the base is not version {}",
                              directory, quoted_name(name), index.base_version.value));
    };
  };
  WC_TRY(write_edited(before, base, find_edit, target));
  if (delta) {
    WC_TRY(delta->check_unchanged());
  }
  return index;
}

}  // namespace weightcast
