#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "bench/codec/cells.h"
#include "bench/codec/rivals/rivals.h"
#include "bench/codec/rivals/sparse.h"

// For every tensor with a change: u32 tensor, u64 frame bytes, a zstd-1 frame of base XOR result.

namespace weightcast::bench {
namespace {

// What is XORed at a time. The frame is that of the whole tensor: its size is pledged, so zstd picks the same
// parameters as for one call, and only the window is kept.
constexpr std::size_t kPieceBytes = 128 * 1024;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

void xor_into(MutableBytes cells, Bytes mask) {
  std::size_t i = 0;
  for (; i + sizeof(std::uint64_t) <= mask.size(); i += sizeof(std::uint64_t)) {
    store_cell(cells.data() + i, 0,
               load_cell<std::uint64_t>(cells.data() + i, 0) ^ load_cell<std::uint64_t>(mask.data() + i, 0));
  }
  for (; i < mask.size(); ++i) cells[i] ^= mask[i];
}

Result<std::vector<std::byte>> encode(Bytes base, Bytes result, std::span<const TensorInfo> tensors, unsigned) {
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, 1);
  ByteWriter writer;
  std::vector<std::byte> piece(kPieceBytes);
  std::vector<std::byte> compressed(ZSTD_CStreamOutSize());
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const Bytes before = base.subspan(tensors[t].offset_bytes, tensors[t].size_bytes);
    const Bytes after = result.subspan(tensors[t].offset_bytes, tensors[t].size_bytes);
    if (before.empty() || std::memcmp(before.data(), after.data(), before.size()) == 0) continue;
    writer.put(static_cast<std::uint32_t>(t));
    writer.put(std::uint64_t{0});
    const std::size_t start = writer.size();
    ZSTD_CCtx_reset(context.get(), ZSTD_reset_session_only);
    ZSTD_CCtx_setPledgedSrcSize(context.get(), before.size());
    for (std::size_t done = 0; done < before.size();) {
      const std::size_t size = std::min(kPieceBytes, before.size() - done);
      std::memcpy(piece.data(), after.data() + done, size);
      xor_into(piece, before.subspan(done, size));
      done += size;
      ZSTD_inBuffer in{piece.data(), size, 0};
      const ZSTD_EndDirective directive = done == before.size() ? ZSTD_e_end : ZSTD_e_continue;
      for (bool more = true; more;) {
        ZSTD_outBuffer out{compressed.data(), compressed.size(), 0};
        const std::size_t left = ZSTD_compressStream2(context.get(), &out, &in, directive);
        WC_CHECK(!ZSTD_isError(left));
        writer.put_array(std::span<const std::byte>(compressed).first(out.pos));
        more = directive == ZSTD_e_end ? left != 0 : in.pos < in.size;
      }
    }
    const std::uint64_t frame_bytes = writer.size() - start;
    std::memcpy(writer.bytes().data() + start - sizeof frame_bytes, &frame_bytes, sizeof frame_bytes);
  }
  return std::move(writer.bytes());
}

Status apply(Bytes patch, Bytes, std::span<const TensorInfo> tensors, MutableBytes target, unsigned) {
  const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
  std::vector<std::byte> piece(ZSTD_DStreamOutSize());
  ByteReader reader(patch);
  while (reader.left() > 0) {
    const auto t = reader.get<std::uint32_t>();
    const Bytes frame = reader.take(reader.get<std::uint64_t>());
    if (reader.failed() || t >= tensors.size()) return corrupt_patch();
    const MutableBytes cells = target.subspan(tensors[t].offset_bytes, tensors[t].size_bytes);
    ZSTD_DCtx_reset(context.get(), ZSTD_reset_session_only);
    ZSTD_inBuffer in{frame.data(), frame.size(), 0};
    std::size_t done = 0;
    for (std::size_t hint = 1; hint != 0;) {
      ZSTD_outBuffer out{piece.data(), piece.size(), 0};
      const std::size_t in_before = in.pos;
      hint = ZSTD_decompressStream(context.get(), &out, &in);
      if (ZSTD_isError(hint) || out.pos > cells.size() - done) return corrupt_patch();
      if (hint != 0 && out.pos == 0 && in.pos == in_before) return corrupt_patch();
      xor_into(cells.subspan(done), std::span<const std::byte>(piece).first(out.pos));
      done += out.pos;
    }
    if (done != cells.size() || in.pos != in.size) return corrupt_patch();
  }
  return reader.failed() ? Status(corrupt_patch()) : Status();
}

}  // namespace

constinit const Codec kXorZstd = {"xor-zstd", encode, apply};

}  // namespace weightcast::bench
