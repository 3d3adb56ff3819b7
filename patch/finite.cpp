#include "patch/finite.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "patch/snapshot.h"

namespace weightcast {
namespace {

// Copied to an aligned array of this size first, so that the compiler makes vectors of the loop over it whatever the
// alignment of the data; it stays in the first-level cache. Also bounds what the narrow per-block counters must hold.
constexpr std::size_t kBlockBytes = 4096;

/// Elements of `data` that, under `mask`, equal `mask`: an exponent of all ones.
template <typename Word, Word mask>
std::uint64_t count_masked(Bytes data) {
  constexpr std::size_t kWords = kBlockBytes / sizeof(Word);
  alignas(64) std::array<Word, kWords> block;
  std::uint64_t total = 0;
  for (; data.size() >= kBlockBytes; data = data.subspan(kBlockBytes)) {
    std::memcpy(block.data(), data.data(), kBlockBytes);
    // The dot is in Word's own width, which keeps the vectors full; checked for being nonzero only.
    Word any = 0;
    for (const Word word : block) any |= static_cast<Word>((word & mask) == mask);
    if (any == 0) continue;
    for (const Word word : block) total += (word & mask) == mask;
  }
  for (; data.size() >= sizeof(Word); data = data.subspan(sizeof(Word))) {
    Word word;
    std::memcpy(&word, data.data(), sizeof word);
    total += (word & mask) == mask;
  }
  return total;
}

}  // namespace

std::uint64_t count_non_finite(std::string_view dtype, Bytes data) {
  if (dtype == "BF16") return count_masked<std::uint16_t, 0x7f80>(data);
  if (dtype == "F16") return count_masked<std::uint16_t, 0x7c00>(data);
  if (dtype == "F32" || dtype == "C64") return count_masked<std::uint32_t, 0x7f800000>(data);
  if (dtype == "F64") return count_masked<std::uint64_t, 0x7ff0000000000000>(data);
  if (dtype == "F8_E5M2") return count_masked<std::uint8_t, 0x7c>(data);
  if (dtype == "F8_E4M3") return count_masked<std::uint8_t, 0x7f>(data);
  if (dtype == "F8_E8M0") return count_masked<std::uint8_t, 0xff>(data);
  return 0;
}

Result<std::optional<NonFinite>> find_non_finite(const SnapshotSource& source) {
  NonFinite found;
  std::vector<std::byte> buffer(std::size_t{1} << 20);  // a multiple of every element's size
  for (const TensorInfo& tensor : source.tensors()) {
    std::uint64_t elements = 0;
    for (std::uint64_t done = 0; done < tensor.size_bytes;) {
      const MutableBytes part =
          MutableBytes(buffer).first(std::min<std::uint64_t>(buffer.size(), tensor.size_bytes - done));
      WC_TRY(source.read_at(tensor.offset_bytes + done, part));
      elements += count_non_finite(tensor.dtype, part);
      done += part.size();
    }
    if (elements == 0) continue;
    if (found.tensors == 0) found.first_tensor = tensor.name;
    ++found.tensors;
    found.elements += elements;
  }
  if (found.tensors == 0) return std::optional<NonFinite>{};
  return std::optional<NonFinite>{std::move(found)};
}

}  // namespace weightcast
