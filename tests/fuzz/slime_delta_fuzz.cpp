// Arbitrary bytes as an index, or as a tensor's frame in either encoding: refused, or followed inside its tensor, and
// then the same change can be written and gives the same cells. The first byte chooses.
#include "patch/interop/slime_delta.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  if (size < 1) return 0;
  if (data[0] % 3 == 2) {
    const auto index = read_slime_index({reinterpret_cast<const char*>(data + 1), size - 1}, "fuzz");
    WC_CHECK(index.has_value() || !index.error().detail.empty());
    return 0;
  }
  const SlimeEncoding encoding = data[0] % 3 == 0 ? SlimeEncoding::kXor : SlimeEncoding::kOverwrite;
  std::vector<std::byte> before(300);
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = std::byte(i * 7);
  std::vector<std::byte> after = before;
  if (!apply_slime_tensor(encoding, std::as_bytes(std::span(data + 1, size - 1)), after)) return 0;
  const auto frame = encode_slime_tensor(encoding, before, after);
  WC_CHECK(frame.has_value() && frame->empty() == (before == after));
  if (frame->empty()) return 0;
  std::vector<std::byte> again = before;
  WC_CHECK(apply_slime_tensor(encoding, *frame, again).has_value() && again == after);
  return 0;
}
