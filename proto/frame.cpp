#include "proto/frame.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstring>
#include <string_view>

namespace weightcast {
namespace {

constexpr std::array<char, 4> kMagic{'W', 'C', 'F', '2'};
constexpr std::size_t kCheckedBytes = 32;

static_assert(std::endian::native == std::endian::little, "the wire is little-endian and so are the hosts we run on");

template <typename T>
void put(FrameHeaderBytes& out, std::size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof value);
}

template <typename T>
T get(Bytes in, std::size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}

/// What a peer speaks whose first bytes are no frame.
std::string_view what_speaks(Bytes bytes) {
  const auto starts_with = [&](std::string_view text) {
    return std::memcmp(bytes.data(), text.data(), text.size()) == 0;
  };
  // Others' clients find this port, too.
  for (const std::string_view method : {"GET ", "HEAD", "POST", "PUT ", "OPTI", "CONN"}) {
    if (starts_with(method)) return "an HTTP client has come; HTTP is answered at --http, not at --listen";
  }
  if (starts_with("HTTP")) {
    return "an HTTP server answers there; --origin takes what the origin's --listen says, not its --http";
  }
  // A record of TLS: a handshake or an alert, of version 3.x.
  if ((bytes[0] == std::byte{0x16} || bytes[0] == std::byte{0x15}) && bytes[1] == std::byte{3}) {
    return "the peer speaks TLS, such as HTTPS, or a node with --keys; this node has none";
  }
  return "does not start with WCF2; the peer does not speak this protocol, or is of an older release";
}

}  // namespace

FrameHeaderBytes encode_frame_header(const FrameHeader& header) {
  FrameHeaderBytes out{};
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  put(out, 4, static_cast<std::uint8_t>(header.type));
  if (header.type == FrameType::kChunk) put(out, 5, static_cast<std::uint8_t>(header.payload.kind));
  put(out, 8, header.body_bytes);
  put(out, 12, header.chunk.value);
  put(out, 16, header.payload.version.value);
  put(out, 24, header.payload.base.value);
  put(out, kCheckedBytes, XXH3_64bits(out.data(), kCheckedBytes));
  return out;
}

Result<FrameHeader> decode_frame_header(Bytes bytes) {
  WC_CHECK(bytes.size() >= FrameHeader::kBytes);
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("frame: {}", what_speaks(bytes)));
  }
  if (get<std::uint64_t>(bytes, kCheckedBytes) != XXH3_64bits(bytes.data(), kCheckedBytes)) {
    return fail(Errc::kCorrupt, Op::kParse,
                "frame: the header's check does not match; bytes were lost or changed on the way");
  }
  FrameHeader header;
  const auto type = get<std::uint8_t>(bytes, 4);
  if (type != std::uint8_t(FrameType::kControl) && type != std::uint8_t(FrameType::kChunk)) {
    return fail(Errc::kUnsupported, Op::kParse, fmt::format("frame: type {} is not known here", type));
  }
  header.type = static_cast<FrameType>(type);
  if (bytes[6] != std::byte{0} || bytes[7] != std::byte{0}) {
    return fail(Errc::kCorrupt, Op::kParse, "frame: reserved bytes are not zero");
  }
  header.body_bytes = get<std::uint32_t>(bytes, 8);
  header.chunk = ChunkIndex{get<std::uint32_t>(bytes, 12)};
  const auto kind = get<std::uint8_t>(bytes, 5);
  header.payload.version = Version{get<std::uint64_t>(bytes, 16)};
  header.payload.base = Version{get<std::uint64_t>(bytes, 24)};
  const std::size_t limit = header.type == FrameType::kControl ? kControlBytesMax : std::size_t{kChunkBytesMax};
  if (header.body_bytes > limit) {
    return fail(Errc::kTooLarge, Op::kParse,
                fmt::format("frame: body of {} bytes, at most {} are allowed", header.body_bytes, limit));
  }
  if (header.type == FrameType::kControl) {
    if (kind != 0 || header.chunk.value != 0 || header.payload != PayloadId{}) {
      return fail(Errc::kCorrupt, Op::kParse, "frame: a control frame names a chunk");
    }
    return header;
  }
  if (kind < std::uint8_t(PayloadKind::kFull) || kind > std::uint8_t(PayloadKind::kPatch)) {
    return fail(Errc::kUnsupported, Op::kParse, fmt::format("frame: payload kind {} is not known here", kind));
  }
  header.payload.kind = static_cast<PayloadKind>(kind);
  return header;
}

}  // namespace weightcast
