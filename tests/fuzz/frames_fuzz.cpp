// Arbitrary bytes as the stream of a connection, in pieces of any size: they are frames within the limits, or an error,
// and take no more memory than has arrived.
//
// The first byte: bit 0 a connection that takes no chunks, bit 1 one that is not identified. Then operations:
//   0 n ...      n bytes as they are
//   1 t k l l    a header that is right: of type t, kind k, and l bytes
//   2 n          n * 64 zeros
// Each is read in pieces of the first byte's upper six bits, and one more.
#include <cstring>

#include "tests/fuzz/fuzz_input.h"
#include "transport/io/net/incoming_frame.h"

namespace weightcast {
namespace {

class Stream {
 public:
  explicit Stream(std::uint8_t flags) : frame_(pool_), piece_(1 + (flags >> 2)) {
    if ((flags & 1) != 0) limits_.chunk_bytes_max = 0;
    if ((flags & 2) != 0) limits_.control_bytes_max = 4 * kKiB;
    frame_.set_limits(limits_);
  }

  /// Whether the stream goes on.
  bool feed(Bytes bytes) {
    while (!bytes.empty()) {
      const std::span<iovec> space = frame_.space(std::min(piece_, bytes.size()));
      WC_CHECK(!space.empty());
      std::size_t read = 0;
      for (const iovec& piece : space) {
        const std::size_t size = std::min(piece.iov_len, bytes.size() - read);
        std::memcpy(piece.iov_base, bytes.data() + read, size);
        read += size;
      }
      bytes = bytes.subspan(read);
      if (!take(read)) return false;
    }
    return true;
  }

 private:
  bool take(std::size_t read) {
    do {
      const Result<std::size_t> left = frame_.take(read);
      if (!left.has_value()) return false;
      WC_CHECK(*left <= read);
      read = *left;
      if (!frame_.complete()) continue;
      if (frame_.is_chunk()) {
        const ReceivedChunk chunk = frame_.take_chunk();
        WC_CHECK(chunk.bytes->size() <= limits_.chunk_bytes_max);
        WC_CHECK(chunk.digest == content_digest_of({chunk.bytes->data(), chunk.bytes->size()}));
      } else {
        WC_CHECK(frame_.take_control().size() <= limits_.control_bytes_max);
      }
      WC_CHECK(!frame_.complete());
    } while (read > 0);
    return true;
  }

  BufferPool pool_{1 * kMiB};
  ReceiveLimits limits_;
  IncomingFrame frame_;
  const std::size_t piece_;
};

}  // namespace
}  // namespace weightcast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  FuzzInput input(data, size);
  Stream stream(input.byte());
  bool goes_on = true;
  while (goes_on && !input.empty()) {
    switch (input.byte() % 3) {
      case 0: {
        const std::size_t count = input.byte();
        goes_on = stream.feed(std::as_bytes(input.bytes(count)));
        break;
      }
      case 1: {
        FrameHeader header;
        header.type = static_cast<FrameType>(1 + input.byte() % 3);
        const auto kind = static_cast<PayloadKind>(1 + input.byte() % 3);
        header.body_bytes = input.word();
        if (header.type == FrameType::kChunk) {
          header.payload = {Version{2}, kind, kind == PayloadKind::kPatch ? Version{1} : kNoVersion};
        }
        goes_on = stream.feed(encode_frame_header(header));
        break;
      }
      case 2: goes_on = stream.feed(std::vector<std::byte>(std::size_t{input.byte()} * 64)); break;
    }
  }
  return 0;
}
