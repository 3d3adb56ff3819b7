#include "bench/codec/packer.h"

#include <fmt/format.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "patch/codec/segment_codec.h"
#include "patch/kernels/kernels.h"

namespace weightcast::bench {
namespace {

// What an origin cuts a snapshot into.
constexpr std::size_t kSegmentBytes = 1 << 20;
// As lz4's own program does.
constexpr std::size_t kLz4BlockBytes = 4 << 20;

Error damaged(std::string_view what) {
  return fail(Errc::kCorrupt, Op::kDecode, fmt::format("{}: what it packed cannot be unpacked", what));
}

Packer own_packer(const Kernels& kernels) {
  Packer packer;
  packer.name = fmt::format("weightcast-{}", kernels.name);
  packer.pack = [&kernels](CellKind kind, Bytes cells, std::vector<std::byte>& room) -> Result<std::size_t> {
    SegmentEncoder encoder(kernels);
    room.clear();
    room.reserve(cells.size() + cells.size() / 64 + kSegmentBytes);
    for (std::size_t at = 0; at < cells.size(); at += kSegmentBytes) {
      const auto size = std::min(kSegmentBytes, cells.size() - at);
      encoder.encode({std::uint32_t(at / kSegmentBytes), at, kNoBase, std::uint32_t(size), kind}, {},
                     cells.subspan(at, size), room);
    }
    return room.size();
  };
  packer.unpack = [&kernels](CellKind, Bytes packed, MutableBytes cells) -> Status {
    while (!packed.empty()) {
      if (packed.size() < kSegmentHeaderBytes) return damaged("weightcast");
      WC_ASSIGN(const SegmentHeader header, peek_segment(packed.first(kSegmentHeaderBytes)));
      const std::size_t frame_bytes = kSegmentHeaderBytes + header.payload_bytes;
      if (packed.size() < frame_bytes) return damaged("weightcast");
      WC_ASSIGN(const Segment segment, read_segment(packed.first(frame_bytes)));
      const SegmentRange& range = segment.header.range;
      if (range.result_offset > cells.size() || range.size_bytes > cells.size() - range.result_offset) {
        return damaged("weightcast");
      }
      WC_TRY(decode_segment(segment, {}, cells.subspan(range.result_offset, range.size_bytes), kernels));
      packed = packed.subspan(frame_bytes);
    }
    return {};
  };
  return packer;
}

Packer zstd_packer(int level) {
  Packer packer;
  packer.name = fmt::format("zstd-{}", level);
  packer.pack = [level](CellKind, Bytes cells, std::vector<std::byte>& room) -> Result<std::size_t> {
    room.resize(std::max(room.size(), ZSTD_compressBound(cells.size())));
    const std::size_t size = ZSTD_compress(room.data(), room.size(), cells.data(), cells.size(), level);
    if (ZSTD_isError(size) != 0) return fail(Errc::kIo, Op::kEncode, fmt::format("zstd: {}", ZSTD_getErrorName(size)));
    return size;
  };
  packer.unpack = [](CellKind, Bytes packed, MutableBytes cells) -> Status {
    const std::size_t size = ZSTD_decompress(cells.data(), cells.size(), packed.data(), packed.size());
    return size == cells.size() ? Status() : Status(damaged("zstd"));
  };
  return packer;
}

// Blocks, each behind its length.
Packer lz4_packer() {
  Packer packer;
  packer.name = "lz4";
  packer.pack = [](CellKind, Bytes cells, std::vector<std::byte>& room) -> Result<std::size_t> {
    const std::size_t block_bound = sizeof(std::uint32_t) + LZ4_COMPRESSBOUND(kLz4BlockBytes);
    room.resize(std::max(room.size(), (cells.size() / kLz4BlockBytes + 1) * block_bound));
    std::size_t end = 0;
    for (std::size_t at = 0; at < cells.size(); at += kLz4BlockBytes) {
      const std::size_t size = std::min(kLz4BlockBytes, cells.size() - at);
      const int put = LZ4_compress_default(reinterpret_cast<const char*>(cells.data() + at),
                                           reinterpret_cast<char*>(room.data() + end + sizeof(std::uint32_t)),
                                           int(size), int(block_bound - sizeof(std::uint32_t)));
      WC_CHECK(put > 0);  // the bound is lz4's own
      const auto length = std::uint32_t(put);
      std::memcpy(room.data() + end, &length, sizeof length);
      end += sizeof length + length;
    }
    return end;
  };
  packer.unpack = [](CellKind, Bytes packed, MutableBytes cells) -> Status {
    std::size_t at = 0;
    while (packed.size() >= sizeof(std::uint32_t)) {
      std::uint32_t length;
      std::memcpy(&length, packed.data(), sizeof length);
      packed = packed.subspan(sizeof length);
      if (length > packed.size()) return damaged("lz4");
      const int put =
          LZ4_decompress_safe(reinterpret_cast<const char*>(packed.data()), reinterpret_cast<char*>(cells.data() + at),
                              int(length), int(std::min(kLz4BlockBytes, cells.size() - at)));
      if (put < 0) return damaged("lz4");
      at += std::size_t(put);
      packed = packed.subspan(length);
    }
    return at == cells.size() && packed.empty() ? Status() : Status(damaged("lz4"));
  };
  return packer;
}

}  // namespace

std::vector<Packer> packers() {
  std::vector<Packer> all;
  for (const Kernels* kernels : available_kernels()) all.push_back(own_packer(*kernels));
  all.push_back(zstd_packer(1));
  all.push_back(zstd_packer(3));
  all.push_back(lz4_packer());
  return all;
}

}  // namespace weightcast::bench
