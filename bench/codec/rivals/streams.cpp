#include "bench/codec/rivals/streams.h"

#include <fmt/format.h>
#include <zstd.h>

namespace weightcast::bench {

std::vector<std::byte> zstd_compress(Bytes content) {
  std::vector<std::byte> frame(ZSTD_compressBound(content.size()));
  const std::size_t size = ZSTD_compress(frame.data(), frame.size(), content.data(), content.size(), 1);
  WC_CHECK(!ZSTD_isError(size));  // a buffer of the bound's size leaves no reason
  frame.resize(size);
  return frame;
}

Result<std::vector<std::byte>> zstd_decompress(Bytes frame, std::uint64_t content_bytes_max) {
  const unsigned long long claimed = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (claimed == ZSTD_CONTENTSIZE_ERROR || claimed == ZSTD_CONTENTSIZE_UNKNOWN) {
    return fail(Errc::kCorrupt, Op::kDecode, "patch: not a zstd frame with a content size");
  }
  if (claimed > content_bytes_max) {
    return fail(Errc::kTooLarge, Op::kDecode,
                fmt::format("patch: its frame claims {} bytes, at most {} are possible", claimed, content_bytes_max));
  }
  std::vector<std::byte> content(claimed);
  const std::size_t size = ZSTD_decompress(content.data(), content.size(), frame.data(), frame.size());
  if (ZSTD_isError(size) || size != claimed) return fail(Errc::kCorrupt, Op::kDecode, "patch: damaged zstd frame");
  return content;
}

}  // namespace weightcast::bench
