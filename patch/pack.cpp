#include "patch/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "patch/byte_io.h"

namespace weightcast {
namespace {

constexpr std::uint32_t kPackMagic = 0x4b415057;  // "WPAK"
constexpr std::uint8_t kPackVersion = 1;
enum class PackMethod : std::uint8_t { kRaw = 0, kPlanes = 1 };

Error corrupt(std::string what) {
  return fail(Errc::kCorrupt, Op::kDecode, "packed snapshot: " + std::move(what) + "; fetch it again");
}

struct PackRange {
  std::uint64_t offset;
  std::uint32_t size_bytes;
  CellKind kind;
};

struct BlockHeader {
  std::uint32_t size_bytes;
  std::uint32_t packed_bytes;
  CellKind kind;
  PackMethod method;
  Digest digest;
};

constexpr std::size_t kBlockFieldBytes = kPackBlockHeaderBytes - Digest::kBytes;

Digest block_digest(Bytes fields, Bytes packed) {
  DigestStream digest;
  digest.update(fields);
  digest.update(packed);
  return digest.digest();
}

std::vector<std::byte> pack_block(const PackRange& range, Bytes cells) {
  std::vector<std::byte> packed;
  encode_planes(range.kind, cells, nullptr, cells.size(), packed);
  const bool pays = packed.size() < cells.size();
  const Bytes payload = pays ? Bytes(packed) : cells;
  std::vector<std::byte> frame;
  frame.reserve(kPackBlockHeaderBytes + payload.size());
  ByteWriter writer(frame);
  writer.fixed(range.size_bytes);
  writer.fixed(std::uint32_t(payload.size()));
  writer.fixed(std::uint8_t(range.kind));
  writer.fixed(std::uint8_t(pays ? PackMethod::kPlanes : PackMethod::kRaw));
  writer.fixed(std::uint16_t{0});
  writer.digest(block_digest(frame, payload));
  writer.bytes(payload);
  return frame;
}

Result<BlockHeader> read_block_header(Bytes bytes) {
  ByteReader reader(bytes.first(kPackBlockHeaderBytes));
  BlockHeader header{};
  header.size_bytes = reader.fixed<std::uint32_t>();
  header.packed_bytes = reader.fixed<std::uint32_t>();
  const auto kind = reader.fixed<std::uint8_t>();
  const auto method = reader.fixed<std::uint8_t>();
  const auto reserved = reader.fixed<std::uint16_t>();
  header.digest = reader.digest();
  if (kind >= kCellKinds || method > 1 || reserved != 0) return corrupt("a block is of an unknown kind");
  header.kind = CellKind(kind);
  header.method = PackMethod(method);
  if (header.size_bytes > kPackBlockBytes) {
    return fail(Errc::kTooLarge, Op::kDecode,
                fmt::format("packed snapshot: a block exceeds {} bytes", kPackBlockBytes));
  }
  if (header.size_bytes == 0 || header.size_bytes % geometry_of(header.kind).bytes != 0 ||
      header.packed_bytes > header.size_bytes) {
    return corrupt("a block's length cannot be");
  }
  return header;
}

}  // namespace

Result<std::uint64_t> pack_snapshot(const SnapshotLayout& layout, const ByteSource& stream, unsigned threads,
                                    const PatchSink& sink) {
  if (layout.size_bytes != stream.size_bytes()) {
    return fail(Errc::kInvalidArgument, Op::kEncode,
                fmt::format("the snapshot has {} bytes, its layout {}", stream.size_bytes(), layout.size_bytes));
  }
  WC_ASSIGN(const PatchHead pieces, make_head({}, SnapshotLayout{}, layout, kSegmentBytesMax));
  std::vector<PackRange> ranges;
  for (const PatchPiece& piece : pieces.pieces) {
    for (std::uint64_t at = 0; at < piece.size_bytes; at += kPackBlockBytes) {
      ranges.push_back({piece.result_offset + at,
                        std::uint32_t(std::min<std::uint64_t>(kPackBlockBytes, piece.size_bytes - at)), piece.kind});
    }
  }
  std::vector<std::byte> head;
  ByteWriter writer(head);
  writer.fixed(kPackMagic);
  writer.fixed(kPackVersion);
  for (int i = 0; i < 3; ++i) writer.fixed(std::uint8_t{0});
  writer.fixed(layout.size_bytes);
  WC_TRY(sink(head));
  std::uint64_t packed_bytes = head.size();

  // Rounds of one block per thread: a block takes milliseconds, so that waiting for the slowest costs little.
  threads = std::max(threads, 1u);
  std::vector<Result<std::vector<std::byte>>> frames(threads);
  for (std::size_t first = 0; first < ranges.size(); first += threads) {
    const std::size_t count = std::min<std::size_t>(threads, ranges.size() - first);
    const auto pack = [&](std::size_t i) {
      const PackRange& range = ranges[first + i];
      std::vector<std::byte> scratch;
      const Result<Bytes> cells = stream.view(range.offset, range.size_bytes, scratch);
      frames[i] = cells ? Result<std::vector<std::byte>>(pack_block(range, *cells)) : cells.error();
    };
    {
      std::vector<std::thread> others;
      for (std::size_t i = 1; i < count; ++i) others.emplace_back(pack, i);
      pack(0);
      for (std::thread& other : others) other.join();
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!frames[i]) return frames[i].error();
      WC_TRY(sink(*frames[i]));
      packed_bytes += frames[i]->size();
    }
  }
  return packed_bytes;
}

Status Unpacker::handle_frame() {
  if (!size_bytes_) {
    ByteReader reader(buffer_);
    const auto magic = reader.fixed<std::uint32_t>();
    const auto version = reader.fixed<std::uint32_t>();
    if (magic != kPackMagic || version != kPackVersion) return corrupt("its head is not one");
    size_bytes_ = reader.fixed<std::uint64_t>();
  } else {
    WC_ASSIGN(const BlockHeader header, read_block_header(buffer_));
    if (header.size_bytes > *size_bytes_ - done_bytes_) return corrupt("it is longer than it says");
    if (buffer_.size() == kPackBlockHeaderBytes && header.packed_bytes > 0) {
      wanted_bytes_ = kPackBlockHeaderBytes + header.packed_bytes;
      return {};
    }
    const Bytes packed = Bytes(buffer_).subspan(kPackBlockHeaderBytes);
    if (header.digest != block_digest(Bytes(buffer_).first(kBlockFieldBytes), packed))
      return corrupt("a digest does not match");
    std::vector<std::byte> cells(header.size_bytes);
    if (header.method == PackMethod::kPlanes) {
      WC_TRY(decode_planes(header.kind, packed, cells));
    } else {
      if (packed.size() != cells.size()) return corrupt("a block's length cannot be");
      std::copy(packed.begin(), packed.end(), cells.begin());
    }
    done_bytes_ += cells.size();
    block_ = std::move(cells);
  }
  buffer_.clear();
  wanted_bytes_ = kPackBlockHeaderBytes;
  return {};
}

Result<std::size_t> Unpacker::handle_bytes(Bytes bytes) {
  const auto fail_for_good = [this](Error error) {
    failed_ = error;
    return error;
  };
  if (failed_) return *failed_;
  std::size_t taken = 0;
  while (taken < bytes.size() && !block_) {
    if (complete()) return fail_for_good(corrupt("bytes follow its end"));
    const std::size_t count = std::min(wanted_bytes_ - buffer_.size(), bytes.size() - taken);
    buffer_.insert(buffer_.end(), bytes.begin() + std::ptrdiff_t(taken), bytes.begin() + std::ptrdiff_t(taken + count));
    taken += count;
    if (buffer_.size() < wanted_bytes_) continue;
    if (Status handled = handle_frame(); !handled) return fail_for_good(handled.error());
  }
  return taken;
}

std::optional<std::vector<std::byte>> Unpacker::poll_block() { return std::exchange(block_, std::nullopt); }

}  // namespace weightcast
