#include "bench/codec/rivals/rivals.h"
#include "bench/codec/rivals/sparse.h"

// Body: positions in the flattened tensor as LEB128 (absolute, or the gap from the cell after the last), then the new
// values; one zstd-1 frame around all tensors.

namespace weightcast::bench {
namespace {

template <bool kGaps>
Result<std::vector<std::byte>> encode(Bytes base, Bytes result, std::span<const TensorInfo> tensors, unsigned) {
  const auto body = []<typename Cell>(const TensorInfo&, Bytes, const Changes<Cell>& changes, ByteWriter& writer) {
    std::uint32_t expected = 0;
    for (const std::uint32_t position : changes.positions) {
      writer.put_leb128(position - expected);
      if (kGaps) expected = position + 1;
    }
    writer.put_array(std::span(changes.values));
  };
  return zstd_compress(write_sparse(base, result, tensors, body));
}

template <bool kGaps>
Status apply(Bytes patch, Bytes base, std::span<const TensorInfo> tensors, MutableBytes target, unsigned) {
  WC_ASSIGN(const auto content, zstd_decompress(patch, sparse_bytes_max(tensors)));
  const auto body = []<typename Cell>(const TensorInfo&, Bytes before, std::size_t changed, ByteReader& reader,
                                      MutableBytes cells) -> Status {
    // Two readers, one for each stream: the values begin where as many LEB128 numbers end.
    ByteReader positions = reader;
    for (std::size_t i = 0; i < changed && !reader.failed(); ++i) static_cast<void>(reader.get_leb128());
    const Bytes values = reader.take(changed * sizeof(Cell));
    if (reader.failed()) return corrupt_patch();
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < changed; ++i) {
      const std::uint64_t position = expected + positions.get_leb128();
      if (position >= before.size() / sizeof(Cell)) return corrupt_patch();
      store_cell(cells.data(), position, load_cell<Cell>(values.data(), i));
      if (kGaps) expected = position + 1;
    }
    return {};
  };
  return read_sparse(content, base, tensors, target, body);
}

}  // namespace

constinit const Codec kCooLeb128 = {"coo-leb128", encode<false>, apply<false>};
constinit const Codec kGapLeb128 = {"gap-leb128", encode<true>, apply<true>};

}  // namespace weightcast::bench
