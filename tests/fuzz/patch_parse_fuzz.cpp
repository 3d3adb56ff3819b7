// Arbitrary bytes as a patch, fed in pieces: errors, never anything worse, and never more memory than the head allows.
#include "patch/codec/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  if (size == 0) return 0;
  const std::size_t piece = 1 + data[0];
  Bytes rest = std::as_bytes(std::span(data + 1, size - 1));
  PatchReader reader;
  while (!rest.empty()) {
    const Result<std::size_t> taken = reader.handle_bytes(rest.first(std::min(piece, rest.size())));
    if (!taken) break;
    WC_CHECK(*taken > 0);
    rest = rest.subspan(*taken);
    (void)reader.poll_segment();
  }
  return 0;
}
