#include "patch/codec/planes.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <numeric>

#include "patch/codec/byte_io.h"
#include "patch/codec/entropy/byte_rans.h"

namespace weightcast {
namespace {

// 2 was an order-0 code of four streams.
enum class PlaneMethod : std::uint8_t { kRaw = 0, kRepeat = 1, kZstd = 3, kOrder0 = 4 };

constexpr int kZstdLevel = 1;
// Long enough to see repetition, short enough to cost little where there is none.
constexpr std::size_t kProbeBytes = 64 * 1024;
constexpr std::size_t kRepeatProbeBytes = 16 * 1024;
constexpr double kRepeatShareMin = 0.02;
// A plane of mantissas is as good as random: these samples of it tell, where all of it would take as long as coding.
constexpr std::size_t kSampleBytes = 512;
constexpr std::size_t kSamples = 64, kFirstSamples = 8;
// Of its length, what coding has to save.
constexpr double kWorthShare = 0.99;
// Of so few samples not every byte is met, which takes up to a hundredth off.
constexpr double kFirstShare = 0.95;

Error corrupt(const char* what) {
  return fail(Errc::kCorrupt, Op::kDecode, std::string("byte planes: ") + what + "; fetch the segment again");
}

Bytes middle_of(Bytes data, std::size_t size_max) {
  const std::size_t size = std::min(data.size(), size_max);
  return data.subspan((data.size() - size) / 2, size);
}

/// Whether runs of eight bytes come again within a few kilobytes: what zstd can make use of and an order-0 code cannot.
bool repeats(Bytes data) {
  constexpr unsigned kTableBits = 11;
  std::array<std::uint64_t, std::size_t{1} << kTableBits> seen{};
  std::size_t found = 0;
  for (std::size_t i = 0; i + 8 <= data.size(); ++i) {
    std::uint64_t eight;
    std::memcpy(&eight, data.data() + i, sizeof eight);
    std::uint64_t& place = seen[eight * 0x9e3779b97f4a7c15u >> (64 - kTableBits)];
    found += place == eight ? 1 : 0;
    if (i % 8 == 0) place = eight;
  }
  return double(found) > kRepeatShareMin * double(data.size());
}

/// Of a byte, what an ideal order-0 code takes.
double order0_share(const ByteCounts& counts) {
  return order0_bits(counts) / 8 / double(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
}

/// The share by samples from all over the plane, a little below the truth, as not every byte is met.
template <std::size_t Samples>
double sampled_share(Bytes plane) {
  std::array<std::byte, Samples * kSampleBytes> samples;
  for (std::size_t i = 0; i < Samples; ++i) {
    std::memcpy(samples.data() + i * kSampleBytes, plane.data() + plane.size() / Samples * i, kSampleBytes);
  }
  return order0_share(count_bytes(samples));
}

/// By samples; all of a short plane is one.
bool looks_random(Bytes plane) {
  if (plane.size() <= kSamples * kSampleBytes) return order0_share(count_bytes(plane)) >= kWorthShare;
  // A few tell what is far from it, as exponents are.
  return sampled_share<kFirstSamples>(plane) >= kFirstShare && sampled_share<kSamples>(plane) >= kWorthShare;
}

}  // namespace

std::size_t PlanesEncoder::zstd_bytes(Bytes data) {
  coded_.resize(ZSTD_compressBound(data.size()));
  const std::size_t size = ZSTD_compress(coded_.data(), coded_.size(), data.data(), data.size(), kZstdLevel);
  WC_CHECK(ZSTD_isError(size) == 0);  // the bound is zstd's own
  coded_.resize(size);
  return size;
}

void PlanesEncoder::encode_plane(Bytes plane, std::vector<std::byte>& out) {
  ByteWriter writer(out);
  const auto write = [&writer](PlaneMethod method, Bytes coded) {
    writer.fixed(std::uint8_t(method));
    writer.varint(coded.size());
    writer.bytes(coded);
  };
  const bool repeating = repeats(middle_of(plane, kRepeatProbeBytes));
  if (!repeating && looks_random(plane)) return write(PlaneMethod::kRaw, plane);
  const ByteCounts counts = sample_bytes(kernels_, plane);
  const auto counted = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  const std::uint32_t most = *std::max_element(counts.begin(), counts.end());
  if (most == counted) return write(PlaneMethod::kRepeat, plane.first(1));

  // 400 bytes: the frequency table and the final states of the order-0 code.
  const double order0_bytes = order0_bits(counts) / 8 / double(counted) * double(plane.size()) + 400;
  const double expected = std::min(order0_bytes / double(plane.size()), 1.0);
  const Bytes probe = middle_of(plane, kProbeBytes);
  if ((repeating && double(zstd_bytes(probe)) < 0.97 * expected * double(probe.size())) || most > counted / 100 * 97) {
    if (double(zstd_bytes(plane)) < std::min(order0_bytes, double(plane.size()))) {
      return write(PlaneMethod::kZstd, coded_);
    }
  }
  if (order0_bytes < kWorthShare * double(plane.size())) {
    coded_.clear();
    encode_bytes(kernels_, plane, counts, words_, coded_);
    if (coded_.size() < plane.size()) return write(PlaneMethod::kOrder0, coded_);
  }
  write(PlaneMethod::kRaw, plane);
}

void PlanesEncoder::encode(CellKind kind, Bytes cells, const std::byte* before, std::size_t limit_bytes,
                           std::vector<std::byte>& out) {
  if (cells.empty()) return;
  const CellGeometry geometry = geometry_of(kind);
  WC_CHECK(cells.size() % geometry.bytes == 0);
  const std::size_t count = cells.size() / geometry.bytes;
  if (planes_.size() < cells.size()) planes_.resize(cells.size());
  std::array<std::byte*, kCellBytesMax> planes{};
  for (unsigned p = 0; p < geometry.bytes; ++p) planes[p] = planes_.data() + p * count;
  kernels_.split(geometry.bytes, geometry.is_float(), cells.data(), before, count, planes.data());
  for (unsigned p = 0; p < geometry.bytes && out.size() < limit_bytes; ++p) encode_plane({planes[p], count}, out);
}

/// One plane's bytes, some at a time.
class PlanesDecoder::Plane {
 public:
  static Result<Plane> start(const Kernels& kernels, ByteReader& reader, std::size_t bytes) {
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
        if (!plane.order0_->start(kernels, plane.coded_)) return corrupt("an entropy code is damaged");
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
    return corrupt("a plane's method is unknown (another release may have written it)");
  }

  /// The plane's next bytes: in `room`, or where they stand as they are.
  Result<Bytes> next(MutableBytes room) {
    switch (method_) {
      case PlaneMethod::kRaw: {
        const Bytes bytes = coded_.first(room.size());
        coded_ = coded_.subspan(room.size());
        return bytes;
      }
      case PlaneMethod::kRepeat: std::fill(room.begin(), room.end(), coded_[0]); break;
      case PlaneMethod::kOrder0:
        if (!order0_->next(room)) return corrupt("an entropy code is damaged");
        break;
      case PlaneMethod::kZstd: WC_TRY(unzstd(room)); break;
    }
    return Bytes(room);
  }

  [[nodiscard]] bool is_raw() const { return method_ == PlaneMethod::kRaw; }
  [[nodiscard]] bool is_order0() const { return order0_ != nullptr; }
  /// Of an order-0 code: its next bytes as the high ones of cells, whose low ones are `low`.
  Status next_cells(Bytes low, bool rotate, MutableBytes cells) {
    return order0_->next_cells(low, rotate, cells) ? Status() : Status(corrupt("an entropy code is damaged"));
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

PlanesDecoder::PlanesDecoder(const Kernels& kernels, CellKind kind) : kernels_(&kernels), kind_(kind) {}
PlanesDecoder::PlanesDecoder(PlanesDecoder&&) noexcept = default;
PlanesDecoder& PlanesDecoder::operator=(PlanesDecoder&&) noexcept = default;
PlanesDecoder::~PlanesDecoder() = default;

Result<PlanesDecoder> PlanesDecoder::start(const Kernels& kernels, CellKind kind, Bytes coded,
                                           std::size_t cells_bytes) {
  const unsigned width = geometry_of(kind).bytes;
  WC_CHECK(cells_bytes % width == 0);
  PlanesDecoder decoder(kernels, kind);
  ByteReader reader(coded);
  for (unsigned p = 0; p < width && cells_bytes > 0; ++p) {
    WC_ASSIGN(Plane plane, Plane::start(kernels, reader, cells_bytes / width));
    decoder.planes_.push_back(std::move(plane));
  }
  if (reader.remaining() != 0) return corrupt("bytes are left over");
  return decoder;
}

Status PlanesDecoder::next(Bytes before, MutableBytes after) {
  const CellGeometry geometry = geometry_of(kind_);
  WC_CHECK(after.size() % geometry.bytes == 0 && (before.empty() || before.size() == after.size()));
  if (after.empty()) return {};
  const std::size_t count = after.size() / geometry.bytes;
  if (before.empty() && geometry.bytes == 2 && planes_[0].is_raw() && planes_[1].is_order0()) {
    WC_ASSIGN(const Bytes low, planes_[0].next(after.first(count)));
    return planes_[1].next_cells(low, geometry.is_float(), after);
  }
  window_.resize(after.size());
  std::array<const std::byte*, kCellBytesMax> planes{};
  for (unsigned p = 0; p < geometry.bytes; ++p) {
    WC_ASSIGN(const Bytes plane, planes_[p].next(MutableBytes(window_).subspan(p * count, count)));
    planes[p] = plane.data();
  }
  kernels_->merge(geometry.bytes, geometry.is_float(), planes.data(), before.empty() ? nullptr : before.data(), count,
                  after.data());
  return {};
}

Status PlanesDecoder::finish() {
  for (Plane& plane : planes_) WC_TRY(plane.finish());
  return {};
}

}  // namespace weightcast
