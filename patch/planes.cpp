#include "patch/planes.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "patch/byte_io.h"
#include "patch/byte_rans.h"

namespace weightcast {
namespace {

enum class PlaneMethod : std::uint8_t { kRaw = 0, kRepeat = 1, kOrder0 = 2, kZstd = 3 };

constexpr int kZstdLevel = 1;
// Long enough to see repetition, short enough to cost little where there is none.
constexpr std::size_t kProbeBytes = 64 * 1024;

Error corrupt(const char* what) {
  return fail(Errc::kCorrupt, Op::kDecode, std::string("byte planes: ") + what + "; fetch the segment again");
}

template <CellKind Kind>
void gather(Bytes cells, const std::byte* before, unsigned plane, MutableBytes out) {
  using Cell = typename CellOps<Kind>::Cell;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Cell cell = CellOps<Kind>::load(cells.data() + i * sizeof(Cell));
    if (before != nullptr) {
      cell = Cell(cell ^ CellOps<Kind>::load(before + i * sizeof(Cell)));
    } else if constexpr (CellOps<Kind>::kGeometry.is_float()) {
      cell = std::rotl(cell, 1);
    }
    out[i] = std::byte(cell >> (8 * plane));
  }
}

// Planes arrive one at a time. The first starts from the old cells, or from nothing; the rotation is undone plane by
// plane, since it only moves bits.
template <CellKind Kind>
void scatter(Bytes in, unsigned plane, bool rotated, std::byte* cells) {
  using Cell = typename CellOps<Kind>::Cell;
  for (std::size_t i = 0; i < in.size(); ++i) {
    Cell cell = CellOps<Kind>::load(cells + i * sizeof(Cell));
    Cell bits = Cell(std::to_integer<std::uint8_t>(in[i]));
    bits = Cell(bits << (8 * plane));
    cell = Cell(cell ^ (rotated ? std::rotr(bits, 1) : bits));
    CellOps<Kind>::store(cells + i * sizeof(Cell), cell);
  }
}

std::size_t zstd_bytes(Bytes data, std::vector<std::byte>& out) {
  out.resize(ZSTD_compressBound(data.size()));
  const std::size_t size = ZSTD_compress(out.data(), out.size(), data.data(), data.size(), kZstdLevel);
  WC_CHECK(ZSTD_isError(size) == 0);  // the bound is zstd's own
  out.resize(size);
  return size;
}

void encode_plane(Bytes plane, std::vector<std::byte>& scratch, std::vector<std::byte>& out) {
  ByteWriter writer(out);
  const auto write = [&writer](PlaneMethod method, Bytes coded) {
    writer.fixed(std::uint8_t(method));
    writer.varint(coded.size());
    writer.bytes(coded);
  };
  const ByteCounts counts = count_bytes(plane);
  const std::uint32_t most = *std::max_element(counts.begin(), counts.end());
  if (most == plane.size()) return write(PlaneMethod::kRepeat, plane.first(1));

  // 300 bytes: the frequency table of the order-0 code.
  const double order0_bytes = order0_bits(counts) / 8 + 300;
  const Bytes probe =
      plane.subspan((plane.size() - std::min(plane.size(), kProbeBytes)) / 2, std::min(plane.size(), kProbeBytes));
  const double expected = std::min(order0_bytes / double(plane.size()), 1.0);
  if (double(zstd_bytes(probe, scratch)) < 0.97 * expected * double(probe.size()) || most > plane.size() / 100 * 97) {
    if (double(zstd_bytes(plane, scratch)) < std::min(order0_bytes, double(plane.size()))) {
      return write(PlaneMethod::kZstd, scratch);
    }
  }
  if (order0_bytes < 0.99 * double(plane.size())) {
    scratch.clear();
    encode_bytes(plane, counts, scratch);
    if (scratch.size() < plane.size()) return write(PlaneMethod::kOrder0, scratch);
  }
  write(PlaneMethod::kRaw, plane);
}

Status decode_plane(ByteReader& reader, MutableBytes plane) {
  const auto method = PlaneMethod(reader.fixed<std::uint8_t>());
  const Bytes coded = reader.bytes(reader.varint());
  if (!reader.ok()) return corrupt("a plane is cut short");
  switch (method) {
    case PlaneMethod::kRaw:
      if (coded.size() != plane.size()) return corrupt("a plane has the wrong length");
      std::memcpy(plane.data(), coded.data(), plane.size());
      return {};
    case PlaneMethod::kRepeat:
      if (coded.size() != 1) return corrupt("a plane has the wrong length");
      std::fill(plane.begin(), plane.end(), coded[0]);
      return {};
    case PlaneMethod::kOrder0:
      if (!decode_bytes(coded, plane)) return corrupt("an entropy code is damaged");
      return {};
    case PlaneMethod::kZstd:
      if (ZSTD_decompress(plane.data(), plane.size(), coded.data(), coded.size()) != plane.size()) {
        return corrupt("a zstd frame is damaged");
      }
      return {};
  }
  return corrupt("a plane's method is unknown");
}

}  // namespace

void encode_planes(CellKind kind, Bytes cells, const std::byte* before, std::size_t limit_bytes,
                   std::vector<std::byte>& out) {
  if (cells.empty()) return;
  const unsigned width = geometry_of(kind).bytes;
  WC_CHECK(cells.size() % width == 0);
  std::vector<std::byte> plane(cells.size() / width), scratch;
  for (unsigned p = 0; p < width && out.size() < limit_bytes; ++p) {
    with_cell_kind(kind, [&]<CellKind Kind>() { gather<Kind>(cells, before, p, plane); });
    encode_plane(plane, scratch, out);
  }
}

Status decode_planes(CellKind kind, Bytes coded, const std::byte* before, MutableBytes cells) {
  const CellGeometry geometry = geometry_of(kind);
  WC_CHECK(cells.size() % geometry.bytes == 0);
  ByteReader reader(coded);
  std::vector<std::byte> plane(cells.size() / geometry.bytes);
  for (unsigned p = 0; p < geometry.bytes && !cells.empty(); ++p) {
    WC_TRY(decode_plane(reader, plane));
    if (p == 0 && before != cells.data()) {
      if (before != nullptr) {
        std::memcpy(cells.data(), before, cells.size());
      } else {
        std::memset(cells.data(), 0, cells.size());
      }
    }
    const bool rotated = before == nullptr && geometry.is_float();
    with_cell_kind(kind, [&]<CellKind Kind>() { scatter<Kind>(plane, p, rotated, cells.data()); });
  }
  if (reader.remaining() != 0) return corrupt("bytes are left over");
  return {};
}

}  // namespace weightcast
