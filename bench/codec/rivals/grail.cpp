#include <limits>

#include "bench/codec/rivals/rivals.h"
#include "bench/codec/rivals/sparse.h"

// Body: u8 bytes per row delta (1, 2 or 4), u8 bytes per column number (2 or 4), row deltas, columns (the gap within a
// row, absolute in a new one), new values. A tensor of one dimension is a column. One zstd-1 frame around all tensors.

namespace weightcast::bench {
namespace {

std::uint64_t columns_of(const TensorInfo& tensor) {
  std::uint64_t columns = 1;
  for (std::size_t d = 1; d < tensor.shape.size(); ++d) columns *= tensor.shape[d];
  return std::max<std::uint64_t>(1, columns);
}

std::uint8_t width_of(const std::vector<std::uint32_t>& numbers, std::uint8_t least) {
  const std::uint32_t most = *std::max_element(numbers.begin(), numbers.end());
  const std::uint8_t needed = most <= std::numeric_limits<std::uint8_t>::max()    ? 1
                              : most <= std::numeric_limits<std::uint16_t>::max() ? 2
                                                                                  : 4;
  return std::max(needed, least);
}

void put_narrow(const std::vector<std::uint32_t>& numbers, unsigned width, ByteWriter& writer) {
  with_cell_type(width, [&]<typename Number>() {
    const std::vector<Number> narrow(numbers.begin(), numbers.end());
    writer.put_array(std::span(narrow));
  });
}

Result<std::vector<std::byte>> encode(Bytes base, Bytes result, std::span<const TensorInfo> tensors, unsigned) {
  const auto body = []<typename Cell>(const TensorInfo& tensor, Bytes, const Changes<Cell>& changes,
                                      ByteWriter& writer) {
    const std::uint64_t columns = columns_of(tensor);
    std::vector<std::uint32_t> row_deltas;
    std::vector<std::uint32_t> column_numbers;
    row_deltas.reserve(changes.positions.size());
    column_numbers.reserve(changes.positions.size());
    std::uint64_t row = 0;
    std::uint64_t row_start = 0;
    std::uint64_t last_column = 0;
    for (const std::uint32_t position : changes.positions) {
      std::uint32_t delta = 0;
      if (position >= row_start + columns) {
        delta = static_cast<std::uint32_t>(position / columns - row);
        row += delta;
        row_start = row * columns;
        last_column = 0;
      }
      const std::uint64_t column = position - row_start;
      row_deltas.push_back(delta);
      column_numbers.push_back(static_cast<std::uint32_t>(column - last_column));
      last_column = column;
    }
    const std::uint8_t row_width = width_of(row_deltas, 1);
    const std::uint8_t column_width = width_of(column_numbers, 2);
    writer.put(row_width);
    writer.put(column_width);
    put_narrow(row_deltas, row_width, writer);
    put_narrow(column_numbers, column_width, writer);
    writer.put_array(std::span(changes.values));
  };
  return zstd_compress(write_sparse(base, result, tensors, body));
}

template <typename Row, typename Column, typename Cell>
Status scatter(std::uint64_t columns, std::size_t changed, ByteReader& reader, MutableBytes cells) {
  const Bytes row_deltas = reader.take(changed * sizeof(Row));
  const Bytes column_numbers = reader.take(changed * sizeof(Column));
  const Bytes values = reader.take(changed * sizeof(Cell));
  if (reader.failed()) return corrupt_patch();
  std::uint64_t row_start = 0;
  std::uint64_t column = 0;
  for (std::size_t i = 0; i < changed; ++i) {
    if (const auto delta = load_cell<Row>(row_deltas.data(), i); delta != 0) {
      row_start += delta * columns;
      column = 0;
    }
    column += load_cell<Column>(column_numbers.data(), i);
    if (row_start + column >= cells.size() / sizeof(Cell)) return corrupt_patch();
    store_cell(cells.data(), row_start + column, load_cell<Cell>(values.data(), i));
  }
  return {};
}

Status apply(Bytes patch, Bytes base, std::span<const TensorInfo> tensors, MutableBytes target, unsigned) {
  WC_ASSIGN(const auto content, zstd_decompress(patch, sparse_bytes_max(tensors)));
  const auto body = []<typename Cell>(const TensorInfo& tensor, Bytes, std::size_t changed, ByteReader& reader,
                                      MutableBytes cells) -> Status {
    const auto row_width = reader.get<std::uint8_t>();
    const auto column_width = reader.get<std::uint8_t>();
    return with_cell_type(row_width, [&]<typename Row>() {
      return with_cell_type(column_width, [&]<typename Column>() {
        return scatter<Row, Column, Cell>(columns_of(tensor), changed, reader, cells);
      });
    });
  };
  return read_sparse(content, base, tensors, target, body);
}

}  // namespace

constinit const Codec kGrail = {"grail-3.1", encode, apply};

}  // namespace weightcast::bench
