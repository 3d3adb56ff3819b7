#include "patch/codec/segment.h"

#include <fmt/format.h>

#include "patch/codec/byte_io.h"

namespace weightcast {
namespace {

Error corrupt(std::string what) {
  return fail(Errc::kCorrupt, Op::kParse, "patch segment: " + std::move(what) + "; fetch it again");
}

// Everything before the frame's digest.
constexpr std::size_t kFieldBytes = kSegmentHeaderBytes - Checksum::kBytes;

Checksum frame_digest(Bytes frame) {
  ChecksumStream stream;
  stream.update(frame.first(kFieldBytes));
  stream.update(frame.subspan(kSegmentHeaderBytes));
  return stream.digest();
}

}  // namespace

bool SegmentHeader::digests_changes() const {
  return mode == SegmentMode::kListed || (mode == SegmentMode::kUnchanged && result_digest == checksum_of({}));
}

void close_segment(SegmentHeader& header, std::size_t begin, std::vector<std::byte>& out) {
  header.payload_bytes = std::uint32_t(out.size() - begin - kSegmentHeaderBytes);
  std::vector<std::byte> fields;
  fields.reserve(kSegmentHeaderBytes);
  ByteWriter writer(fields);
  writer.fixed(kSegmentMagic);
  writer.fixed(header.range.index);
  writer.fixed(header.range.result_offset);
  writer.fixed(header.range.base_offset);
  writer.fixed(header.range.size_bytes);
  writer.fixed(std::uint8_t(header.range.kind));
  writer.fixed(std::uint8_t(header.mode));
  writer.fixed(std::uint16_t{0});
  writer.fixed(header.payload_bytes);
  writer.fixed(header.changed_cells);
  writer.digest(header.result_digest);
  writer.digest(Checksum{});
  WC_CHECK(fields.size() == kSegmentHeaderBytes);
  std::copy(fields.begin(), fields.end(), out.begin() + std::ptrdiff_t(begin));
  const Checksum digest = frame_digest(Bytes(out).subspan(begin));
  std::copy(digest.bytes.begin(), digest.bytes.end(), out.begin() + std::ptrdiff_t(begin + kFieldBytes));
}

void write_segment(const SegmentHeader& header, Bytes payload, std::vector<std::byte>& out) {
  WC_CHECK(header.payload_bytes == payload.size());
  const std::size_t begin = out.size();
  out.reserve(begin + kSegmentHeaderBytes + payload.size());
  out.resize(begin + kSegmentHeaderBytes);
  out.insert(out.end(), payload.begin(), payload.end());
  SegmentHeader closed = header;
  close_segment(closed, begin, out);
}

Result<SegmentHeader> peek_segment(Bytes bytes) {
  if (bytes.size() < kSegmentHeaderBytes) return corrupt("it is cut short");
  ByteReader reader(bytes);
  if (reader.fixed<std::uint32_t>() != kSegmentMagic) return corrupt("it does not begin as a segment");
  SegmentHeader header;
  SegmentRange& range = header.range;
  range.index = reader.fixed<std::uint32_t>();
  range.result_offset = reader.fixed<std::uint64_t>();
  range.base_offset = reader.fixed<std::uint64_t>();
  range.size_bytes = reader.fixed<std::uint32_t>();
  const auto kind = reader.fixed<std::uint8_t>();
  const auto mode = reader.fixed<std::uint8_t>();
  const auto reserved = reader.fixed<std::uint16_t>();
  header.payload_bytes = reader.fixed<std::uint32_t>();
  header.changed_cells = reader.fixed<std::uint32_t>();
  header.result_digest = reader.digest();
  if (kind >= kCellKinds || mode >= kSegmentModes || reserved != 0) return corrupt("a kind or mode is unknown");
  range.kind = CellKind(kind);
  header.mode = SegmentMode(mode);
  if (range.size_bytes > kSegmentBytesMax) {
    return fail(Errc::kTooLarge, Op::kParse,
                fmt::format("patch segment {}: {} bytes exceed the limit of {}", range.index, range.size_bytes,
                            kSegmentBytesMax));
  }
  const std::uint32_t width = geometry_of(range.kind).bytes;
  if (range.size_bytes == 0 || range.size_bytes % width != 0) return corrupt("its length is not a number of cells");
  if (range.result_offset > kNoBase - range.size_bytes) return corrupt("it ends beyond any stream");
  if (range.has_base() && range.base_offset > kNoBase - range.size_bytes)
    return corrupt("its base ends beyond any stream");
  if (header.payload_bytes > payload_bytes_max(header.mode, range.size_bytes))
    return corrupt("its payload is longer than its cells");
  if (header.changed_cells > range.size_bytes / width) return corrupt("more cells change than there are");
  const bool needs_base = header.mode != SegmentMode::kPlanes && header.mode != SegmentMode::kRaw;
  if (needs_base && !range.has_base()) return corrupt("its mode needs a base and it has none");
  const bool empty = header.mode == SegmentMode::kUnchanged;
  if (empty != (header.payload_bytes == 0) || (empty && header.changed_cells != 0))
    return corrupt("its payload contradicts its mode");
  if (header.mode == SegmentMode::kListed && header.changed_cells == 0) return corrupt("a list of no changes");
  if (header.mode == SegmentMode::kRaw && header.payload_bytes != range.size_bytes)
    return corrupt("raw cells of the wrong length");
  return header;
}

Result<Segment> read_segment(Bytes frame) {
  WC_ASSIGN(const SegmentHeader header, peek_segment(frame));
  if (frame.size() != kSegmentHeaderBytes + header.payload_bytes)
    return corrupt("it is cut short or has bytes left over");
  ByteReader reader(frame.subspan(kFieldBytes));
  if (reader.digest() != frame_digest(frame)) return corrupt("its digest does not match");
  return Segment{header, frame.subspan(kSegmentHeaderBytes)};
}

}  // namespace weightcast
