#include "patch/codec/planes.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "patch/codec/byte_io.h"
#include "patch/codec/byte_rans.h"

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

// Planes come one after the other. The first starts from the old cells, or from nothing; the rotation is undone plane
// by plane, since it only moves bits.
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

/// One plane's bytes, some at a time.
class PlanesDecoder::Plane {
 public:
  static Result<Plane> start(ByteReader& reader, std::size_t bytes) {
    Plane plane;
    plane.method_ = PlaneMethod(reader.fixed<std::uint8_t>());
    plane.coded_ = reader.bytes(reader.varint());
    if (!reader.ok()) return corrupt("a plane is cut short");
    switch (plane.method_) {
      case PlaneMethod::kRaw:
        if (plane.coded_.size() != bytes) return corrupt("a plane has the wrong length");
        return plane;
      case PlaneMethod::kRepeat:
        if (plane.coded_.size() != 1) return corrupt("a plane has the wrong length");
        return plane;
      case PlaneMethod::kOrder0:
        plane.order0_ = std::make_unique<ByteDecoder>();
        if (!plane.order0_->start(plane.coded_)) return corrupt("an entropy code is damaged");
        return plane;
      case PlaneMethod::kZstd: {
        plane.zstd_.reset(ZSTD_createDCtx());
        // Whatever a frame says, it takes no more memory than the plane.
        const int window_log = std::max(10, int(std::bit_width(bytes - 1)));
        const std::size_t set = ZSTD_DCtx_setParameter(plane.zstd_.get(), ZSTD_d_windowLogMax, window_log);
        WC_CHECK(ZSTD_isError(set) == 0);
        return plane;
      }
    }
    return corrupt("a plane's method is unknown");
  }

  Status next(MutableBytes bytes) {
    switch (method_) {
      case PlaneMethod::kRaw:
        std::memcpy(bytes.data(), coded_.data(), bytes.size());
        coded_ = coded_.subspan(bytes.size());
        return {};
      case PlaneMethod::kRepeat: std::fill(bytes.begin(), bytes.end(), coded_[0]); return {};
      case PlaneMethod::kOrder0:
        if (!order0_->next(bytes)) return corrupt("an entropy code is damaged");
        return {};
      case PlaneMethod::kZstd: return unzstd(bytes);
    }
    return {};
  }

  Status finish() {
    if (order0_ && !order0_->finished()) return corrupt("an entropy code is damaged");
    if (!zstd_) return {};
    if (!ended_) WC_TRY(unzstd({}));
    return ended_ && coded_.empty() ? Status() : corrupt("a zstd frame is damaged");
  }

 private:
  struct FreeZstd {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };

  Plane() = default;

  /// The next `bytes`; none: what is left of the frame behind the last of them.
  Status unzstd(MutableBytes bytes) {
    ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
    ZSTD_inBuffer in{coded_.data(), coded_.size(), 0};
    do {
      const std::size_t before = in.pos + out.pos;
      const std::size_t wanted = ended_ ? 0 : ZSTD_decompressStream(zstd_.get(), &out, &in);
      if (ZSTD_isError(wanted) != 0) return corrupt("a zstd frame is damaged");
      ended_ = wanted == 0;
      if (out.pos < out.size && in.pos + out.pos == before) return corrupt("a zstd frame is cut short");
    } while (out.pos < out.size);
    coded_ = coded_.subspan(in.pos);
    return {};
  }

  PlaneMethod method_ = PlaneMethod::kRaw;
  Bytes coded_;  // not read yet
  std::unique_ptr<ByteDecoder> order0_;
  std::unique_ptr<ZSTD_DCtx, FreeZstd> zstd_;
  bool ended_ = false;  // the zstd frame
};

PlanesDecoder::PlanesDecoder(CellKind kind) : kind_(kind) {}
PlanesDecoder::PlanesDecoder(PlanesDecoder&&) noexcept = default;
PlanesDecoder& PlanesDecoder::operator=(PlanesDecoder&&) noexcept = default;
PlanesDecoder::~PlanesDecoder() = default;

Result<PlanesDecoder> PlanesDecoder::start(CellKind kind, Bytes coded, std::size_t cells_bytes) {
  const unsigned width = geometry_of(kind).bytes;
  WC_CHECK(cells_bytes % width == 0);
  PlanesDecoder decoder(kind);
  ByteReader reader(coded);
  for (unsigned p = 0; p < width && cells_bytes > 0; ++p) {
    WC_ASSIGN(Plane plane, Plane::start(reader, cells_bytes / width));
    decoder.planes_.push_back(std::move(plane));
  }
  if (reader.remaining() != 0) return corrupt("bytes are left over");
  return decoder;
}

Status PlanesDecoder::next(Bytes before, MutableBytes after) {
  const CellGeometry geometry = geometry_of(kind_);
  WC_CHECK(after.size() % geometry.bytes == 0 && (before.empty() || before.size() == after.size()));
  if (before.empty()) {
    std::memset(after.data(), 0, after.size());
  } else if (before.data() != after.data()) {
    std::memcpy(after.data(), before.data(), after.size());
  }
  window_.resize(after.size() / geometry.bytes);
  const bool rotated = before.empty() && geometry.is_float();
  for (unsigned p = 0; p < planes_.size(); ++p) {
    WC_TRY(planes_[p].next(window_));
    with_cell_kind(kind_, [&]<CellKind Kind>() { scatter<Kind>(window_, p, rotated, after.data()); });
  }
  return {};
}

Status PlanesDecoder::finish() {
  for (Plane& plane : planes_) WC_TRY(plane.finish());
  return {};
}

}  // namespace weightcast
