#pragma once

#include <vector>

#include "base/digest/checksum.h"
#include "patch/kernels/kernels.h"

namespace weightcast {

using ByteCounts = std::array<std::uint32_t, 256>;

[[nodiscard]] ByteCounts count_bytes(Bytes data);
/// Counts of a sample of `data`, with at least 1 for each byte that occurs anywhere: good for a code of all of it, and
/// taken in less than a third of the time. Exact where that would cost more than it saves. Depends on `data` alone.
[[nodiscard]] ByteCounts sample_bytes(const Kernels& kernels, Bytes data);
/// What an ideal order-0 code would take for as many bytes as were counted.
[[nodiscard]] double order0_bits(const ByteCounts& counts);

/// How a code gives the frequencies of its bytes: of all 256, or how many up to the last that occurs, then theirs.
enum class ByteTable { kAll, kUpToLast };

/// Order-0 entropy code of bytes with one static table: frequencies in 1/4096, then 32 interleaved rANS streams (Duda,
/// arXiv 1311.2540), whose words of 16 bits lie one after the other in the order in which they are read, as in Giesen's
/// "Interleaved entropy coders" (arXiv 1402.3392). A processor decodes them side by side in its vectors.
/// `counts` are those of count_bytes() or sample_bytes(); at least two bytes differ. Appends to `out`; `scratch` grows
/// as needed, and what it holds is of no interest before and after.
void encode_bytes(const Kernels& kernels, Bytes data, const ByteCounts& counts, std::vector<std::uint16_t>& scratch,
                  std::vector<std::byte>& out, ByteTable table = ByteTable::kAll);

/// Decodes the output of encode_bytes(), some bytes at a time. Takes 16 KiB.
class ByteDecoder {
 public:
  /// `coded` outlives the decoder. Returns false if encode_bytes() could not have made it.
  [[nodiscard]] bool start(const Kernels& kernels, Bytes coded, ByteTable table = ByteTable::kAll);
  /// Fills `data` with the next bytes. Returns false if the code ends before.
  [[nodiscard]] bool next(MutableBytes data);
  /// The next bytes as the high ones of cells of two bytes; as Kernels::merge() of them and `low`, one for each cell.
  [[nodiscard]] bool next_cells(Bytes low, bool rotate, MutableBytes cells);
  /// Nothing is left over.
  [[nodiscard]] bool finished() const;

 private:
  bool take_one(std::uint32_t& state, std::byte& byte);

  const Kernels* kernels_ = nullptr;
  ByteSlots slots_{};
  ByteStates states_{};  // the first one's turn is next
  Bytes words_;          // not read yet
};

}  // namespace weightcast
