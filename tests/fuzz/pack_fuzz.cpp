// Odd first byte: arbitrary bytes as a packed payload, fed in pieces: errors, never anything worse. Even: arbitrary
// cells of a kind that the second byte chooses are packed, and come out as they were.
#include <array>

#include "patch/pack.h"

namespace {

using namespace weightcast;

/// What comes out before the end or the first error.
std::vector<std::byte> unpack(Bytes packed, std::size_t piece, bool& complete) {
  Unpacker unpacker;
  std::vector<std::byte> out;
  complete = false;
  while (!packed.empty()) {
    const auto taken = unpacker.handle_bytes(packed.first(std::min(piece, packed.size())));
    if (!taken) return out;
    WC_CHECK(*taken > 0);
    packed = packed.subspan(*taken);
    if (const auto block = unpacker.poll_block()) out.insert(out.end(), block->begin(), block->end());
  }
  complete = unpacker.complete();
  if (unpacker.size_bytes()) WC_CHECK(out.size() <= *unpacker.size_bytes());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const Bytes rest = std::as_bytes(std::span(data + 2, size - 2));
  bool complete = false;
  if (data[0] % 2 == 1) {
    (void)unpack(rest, 1 + data[1], complete);
    return 0;
  }
  constexpr std::array kTypes = {"U8", "BF16", "F16", "F32", "F64", "F8_E4M3", "F8_E5M2", "I64"};
  const std::string type = kTypes[data[1] % kTypes.size()];
  const std::size_t width = dtype_bits(type) / 8;
  SnapshotLayout layout;
  layout.size_bytes = rest.size();
  if (rest.size() >= width)
    layout.tensors.push_back({"w", type, {rest.size() / width}, 0, rest.size() / width * width});
  std::vector<std::byte> packed;
  const auto bytes = pack_snapshot(layout, MemorySource(rest), 1, [&](Bytes piece) {
    packed.insert(packed.end(), piece.begin(), piece.end());
    return Status();
  });
  WC_CHECK(bytes.has_value() && *bytes == packed.size());
  const std::vector<std::byte> out = unpack(packed, 1u << 20, complete);
  WC_CHECK(complete && std::equal(out.begin(), out.end(), rest.begin(), rest.end()));
  return 0;
}
