#include "bench/codec/rivals/rivals.h"
#include "bench/codec/rivals/sparse.h"

// Body: int32 positions, then the new values.

namespace weightcast::bench {
namespace {

Result<std::vector<std::byte>> encode(Bytes base, Bytes result, std::span<const TensorInfo> tensors, unsigned) {
  return write_sparse(base, result, tensors,
                      []<typename Cell>(const TensorInfo&, Bytes, const Changes<Cell>& changes, ByteWriter& writer) {
                        writer.put_array(std::span(changes.positions));
                        writer.put_array(std::span(changes.values));
                      });
}

Status apply(Bytes patch, Bytes base, std::span<const TensorInfo> tensors, MutableBytes target, unsigned) {
  return read_sparse(patch, base, tensors, target,
                     []<typename Cell>(const TensorInfo&, Bytes before, std::size_t changed, ByteReader& reader,
                                       MutableBytes cells) -> Status {
                       const Bytes positions = reader.take(changed * sizeof(std::uint32_t));
                       const Bytes values = reader.take(changed * sizeof(Cell));
                       if (reader.failed()) return corrupt_patch();
                       for (std::size_t i = 0; i < changed; ++i) {
                         const auto position = load_cell<std::uint32_t>(positions.data(), i);
                         if (position >= before.size() / sizeof(Cell)) return corrupt_patch();
                         store_cell(cells.data(), position, load_cell<Cell>(values.data(), i));
                       }
                       return {};
                     });
}

}  // namespace

constinit const Codec kRawInt32 = {"raw-int32", encode, apply, false, false};

}  // namespace weightcast::bench
