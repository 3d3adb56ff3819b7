#include "patch/codec/listed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "patch/codec/byte_io.h"

namespace weightcast {
namespace {

// A byte of the steps that stands for the next one of the list of wide steps, and a gap entry that goes on.
constexpr unsigned kEscape = 255;
constexpr std::uint32_t kGapByteMax = 255, kGapPairMax = 65535;
// From this mean distance on, gaps of one byte need so many entries that two bytes for each are faster. The code is as
// short either way, because the digits of geometric gaps are independent.
constexpr std::size_t kWideDistance = 150;
// How far ahead a cell is asked for: some sixteen lines may be under way at once, and a line takes 100 ns.
constexpr std::size_t kAhead = 40;
// What is made from one stream and read again stays in the first-level cache.
constexpr std::size_t kPieceBytes = 4096;

enum Method : std::uint8_t { kPlain = 0, kRepeated = 1, kEntropy = 2 };

Error corrupt(std::uint32_t index, const char* what) {
  return fail(Errc::kCorrupt, Op::kDecode, fmt::format("patch segment {}: {}; fetch the segment again", index, what));
}

/// Steps that are no zero, as integers from 0: towards zero are even, away from it odd.
template <typename Cell>
constexpr Cell code_of(Cell step) {
  constexpr unsigned kSign = 8 * sizeof(Cell) - 1;
  return Cell(Cell(Cell(step << 1) ^ Cell(Cell(0) - Cell(step >> kSign))) - 1);
}
template <typename Cell>
constexpr Cell step_of(Cell code) {
  const Cell folded = Cell(code + 1);
  return Cell(Cell(folded >> 1) ^ Cell(Cell(0) - Cell(folded & 1)));
}
/// A step of one byte is never so large.
template <typename Cell>
constexpr bool escapes(Cell code) {
  return sizeof(Cell) > 1 && code >= kEscape;
}

void grow(auto& buffer, std::size_t size) {
  if (buffer.size() < size) buffer.resize(size);
}

}  // namespace

template <CellKind Kind>
std::size_t ListedEncoder::take_steps(std::span<const std::uint32_t> cells, Bytes before, Bytes after) {
  using Ops = CellOps<Kind>;
  using Cell = typename Ops::Cell;
  grow(cells_, cells.size());
  grow(values_, cells.size() * sizeof(Cell));
  grow(steps_, cells.size());
  escapes_.clear();
  // Not through the vectors: bytes may alias anything, so each store would make the compiler load their pointers again.
  std::uint32_t* const kept_cells = cells_.data();
  std::byte* const values = values_.data();
  std::byte* const steps = steps_.data();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell now = Ops::load(after.data() + i * sizeof(Cell));
    const Cell step = Ops::step(Ops::load(before.data() + i * sizeof(Cell)), now);
    const Cell code = code_of(step);
    kept_cells[kept] = cells[i];
    Ops::store(values + kept * sizeof(Cell), now);
    steps[kept] = std::byte(std::min<Cell>(code, Cell(kEscape)));
    if (step == 0) continue;
    if (escapes(code)) [[unlikely]] {
      const auto bytes = std::as_bytes(std::span(&code, 1));
      escapes_.insert(escapes_.end(), bytes.begin(), bytes.end());
    }
    ++kept;
  }
  return kept;
}

void ListedEncoder::put_stream(Bytes data, std::vector<std::byte>& out) {
  // The states and a table of a few bytes. Below, no code is worth trying.
  constexpr double kOverheadBits = 8 * 132;
  ByteWriter writer(out);
  const ByteCounts counts = count_bytes(data);
  if (!data.empty() && counts[std::to_integer<std::size_t>(data[0])] == data.size()) {
    writer.fixed(std::uint8_t(kRepeated));
    writer.bytes(data.first(1));
    return;
  }
  coded_.clear();
  if (order0_bits(counts) + kOverheadBits < 8.0 * double(data.size())) {
    encode_bytes(kernels_, data, counts, words_, coded_, ByteTable::kUpToLast);
  }
  if (coded_.empty() || coded_.size() >= data.size()) {
    writer.fixed(std::uint8_t(kPlain));
    writer.bytes(data);
    return;
  }
  writer.fixed(std::uint8_t(kEntropy));
  writer.varint(coded_.size());
  writer.bytes(coded_);
}

Result<SegmentHeader> ListedEncoder::encode(const SegmentRange& range, std::span<const std::uint32_t> cells,
                                            Bytes before, Bytes after, std::vector<std::byte>& out) {
  const std::size_t width = geometry_of(range.kind).bytes;
  WC_CHECK(range.has_base() && before.size() == cells.size() * width && after.size() == before.size());
  const std::uint64_t cells_end = range.size_bytes / width;
  const auto invalid = [&](const char* what) {
    return fail(Errc::kInvalidArgument, Op::kEncode,
                fmt::format("patch segment {}: the list of its changes {}", range.index, what));
  };
  if (cells.size() > cells_end) return invalid("is longer than the range");
  const std::size_t changed =
      with_cell_kind(range.kind, [&]<CellKind Kind>() { return take_steps<Kind>(cells, before, after); });

  const bool wide = changed == 0 || cells_end / changed > kWideDistance;
  const std::uint32_t entry_max = wide ? kGapPairMax : kGapByteMax;
  const std::size_t entries_max = changed + cells_end / entry_max + 1;
  grow(gaps_low_, entries_max);
  if (wide) grow(gaps_high_, entries_max);
  std::byte* const low = gaps_low_.data();
  std::byte* const high = gaps_high_.data();
  const std::uint32_t* const changed_cells = cells_.data();
  std::size_t entries = 0;
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < changed; ++i) {
    const std::uint32_t cell = changed_cells[i];
    // Both at once: what lies below `next` is a very long gap.
    if (cell - next >= cells_end - next) return invalid("does not ascend within the range");
    auto gap = std::uint32_t(cell - next);
    next = std::uint64_t{cell} + 1;
    if (wide) {
      for (; gap >= kGapPairMax; gap -= kGapPairMax, ++entries) low[entries] = high[entries] = std::byte(255);
      high[entries] = std::byte(gap >> 8);
    } else {
      for (; gap >= kGapByteMax; gap -= kGapByteMax, ++entries) low[entries] = std::byte(255);
    }
    low[entries++] = std::byte(gap);
  }

  SegmentHeader header;
  header.range = range;
  header.mode = changed == 0 ? SegmentMode::kUnchanged : SegmentMode::kListed;
  header.changed_cells = std::uint32_t(changed);
  header.result_digest = checksum_of(Bytes(values_).first(changed * width));
  const std::size_t begin = out.size();
  out.resize(begin + kSegmentHeaderBytes);
  if (changed > 0) {
    ByteWriter writer(out);
    writer.fixed(std::uint8_t(wide));
    writer.varint(entries);
    put_stream(Bytes(gaps_low_).first(entries), out);
    if (wide) put_stream(Bytes(gaps_high_).first(entries), out);
    put_stream(Bytes(steps_).first(changed), out);
    writer.bytes(escapes_);
  }
  close_segment(header, begin, out);
  WC_CHECK(header.payload_bytes <= payload_bytes_max(header.mode, range.size_bytes));
  return header;
}

bool ListedDecoder::Stream::start(const Kernels& kernels, ByteReader& reader, std::size_t count) {
  method_ = reader.fixed<std::uint8_t>();
  switch (method_) {
    case kPlain: raw_ = reader.bytes(count); return reader.ok();
    case kRepeated: raw_ = reader.bytes(1); return reader.ok();
    case kEntropy: {
      const Bytes coded = reader.bytes(reader.varint());
      return reader.ok() && coded_.start(kernels, coded, ByteTable::kUpToLast);
    }
    default: return false;
  }
}

bool ListedDecoder::Stream::next(MutableBytes data) {
  switch (method_) {
    case kPlain:
      std::ranges::copy(raw_.first(data.size()), data.begin());
      raw_ = raw_.subspan(data.size());
      return true;
    case kRepeated: std::ranges::fill(data, raw_[0]); return true;
    default: return coded_.next(data);
  }
}

bool ListedDecoder::Stream::finished() const { return method_ != kEntropy || coded_.finished(); }

template <bool Wide>
bool ListedDecoder::take_gaps(std::size_t entries, std::uint64_t cells_end, std::size_t changed,
                              std::vector<std::uint32_t>& cells) {
  constexpr std::uint32_t kMax = Wide ? kGapPairMax : kGapByteMax;
  std::array<std::byte, kPieceBytes> low, high;
  // One place for each entry, although those that go on leave theirs to the next: no branch is guessed wrong.
  cells.resize(entries);
  std::uint32_t* const out = cells.data();
  std::size_t found = 0;
  // At most 2^26 entries of 2^16 each.
  std::uint64_t next = 0;
  std::uint32_t goes_on = 0;
  for (std::size_t at = 0; at < entries; at += kPieceBytes) {
    const std::size_t count = std::min(kPieceBytes, entries - at);
    if (!low_.next(MutableBytes(low).first(count))) return false;
    if (Wide && !high_.next(MutableBytes(high).first(count))) return false;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t gap = std::to_integer<std::uint32_t>(low[i]);
      if constexpr (Wide) gap |= std::to_integer<std::uint32_t>(high[i]) << 8;
      goes_on = gap == kMax;
      out[found] = std::uint32_t(next + gap);
      next += gap + 1 - goes_on;
      found += 1 - goes_on;
    }
    // Before the sum can overflow what the cells hold.
    if (next > cells_end) return false;
  }
  if (found != changed || goes_on != 0) return false;
  cells.resize(changed);
  return low_.finished() && (!Wide || high_.finished());
}

template <unsigned CellBytes>
bool ListedDecoder::take_steps(Bytes escaped, std::size_t changed, std::byte* values) {
  using Cell = typename CellInt<CellBytes>::Unsigned;
  std::array<std::byte, kPieceBytes> codes;
  std::array<Cell, kPieceBytes> steps;
  for (std::size_t at = 0; at < changed; at += kPieceBytes) {
    const std::size_t count = std::min(kPieceBytes, changed - at);
    if (!low_.next(MutableBytes(codes).first(count))) return false;
    for (std::size_t i = 0; i < count; ++i) steps[i] = step_of<Cell>(std::to_integer<Cell>(codes[i]));
    const auto escape_from = [&](std::size_t i) {
      const void* const found = std::memchr(codes.data() + i, kEscape, count - i);
      return found == nullptr ? count : std::size_t(static_cast<const std::byte*>(found) - codes.data());
    };
    for (std::size_t i = escape_from(0); i < count; i = escape_from(i + 1)) {
      if (CellBytes == 1 || escaped.size() < CellBytes) return false;
      Cell wide;
      std::memcpy(&wide, escaped.data(), CellBytes);
      escaped = escaped.subspan(CellBytes);
      // A step that a byte holds, or of zero: our encoder makes neither.
      if (wide < Cell(kEscape) || step_of(wide) == 0) return false;
      steps[i] = step_of(wide);
    }
    std::memcpy(values + at * CellBytes, steps.data(), count * CellBytes);
  }
  return escaped.empty() && low_.finished();
}

Status ListedDecoder::decode(const Segment& segment, CellChanges& changes) {
  const SegmentHeader& header = segment.header;
  const std::uint32_t index = header.range.index;
  WC_CHECK(header.mode == SegmentMode::kListed || header.mode == SegmentMode::kUnchanged);
  changes.clear();
  if (header.mode == SegmentMode::kUnchanged) return {};
  const unsigned width = geometry_of(header.range.kind).bytes;
  const std::uint64_t cells_end = header.range.size_bytes / width;
  const std::size_t changed = header.changed_cells;
  if (changed == 0 || changed > cells_end) return corrupt(index, "its number of changes cannot be right");
  ByteReader reader(segment.payload);
  const auto wide = reader.fixed<std::uint8_t>();
  const std::uint64_t entries = reader.varint();
  // Each entry that goes on passes over so many cells, so this also bounds the memory.
  const std::uint64_t goes_on_max = cells_end / (wide != 0 ? kGapPairMax : kGapByteMax);
  if (!reader.ok() || wide > 1 || entries < changed || entries > changed + goes_on_max) {
    return corrupt(index, "its gaps cannot be as many");
  }
  if (!low_.start(*kernels_, reader, entries) || (wide != 0 && !high_.start(*kernels_, reader, entries))) {
    return corrupt(index, "the code of its gaps is damaged");
  }
  if (!(wide != 0 ? take_gaps<true>(entries, cells_end, changed, changes.cells)
                  : take_gaps<false>(entries, cells_end, changed, changes.cells))) {
    return corrupt(index, "its gaps do not fit the range");
  }
  if (!low_.start(*kernels_, reader, changed)) return corrupt(index, "the code of its steps is damaged");
  changes.values.resize(changed * width);
  const Bytes escaped = reader.bytes(reader.remaining());
  const bool fits = with_cell_bytes(
      width, [&]<unsigned CellBytes>() { return take_steps<CellBytes>(escaped, changed, changes.values.data()); });
  return fits ? Status() : corrupt(index, "its steps do not fit its changes");
}

namespace {

/// body(i) for each index, while the cell that is kAhead of it is asked for.
template <bool Written, typename Body>
void with_prefetch(std::span<const std::uint32_t> cells, std::size_t cell_bytes, const std::byte* range, Body&& body) {
  const std::size_t count = cells.size(), ahead = count > kAhead ? count - kAhead : 0;
  std::size_t i = 0;
  for (; i < ahead; ++i) {
    __builtin_prefetch(range + std::size_t{cells[i + kAhead]} * cell_bytes, Written);
    body(i);
  }
  for (; i < count; ++i) body(i);
}

/// `cells` are written where the type lets them be.
template <CellKind Kind, typename Byte>
Checksum resolve(Byte* cells, CellChanges& changes, std::byte* old_values) {
  using Ops = CellOps<Kind>;
  using Cell = typename Ops::Cell;
  constexpr bool kWrites = !std::is_const_v<Byte>;
  ChecksumStream digest;
  std::byte* const values = changes.values.data();
  const std::uint32_t* const places = changes.cells.data();
  std::size_t hashed = 0;
  with_prefetch<kWrites>(changes.cells, sizeof(Cell), cells, [&](std::size_t i) {
    Byte* const cell = cells + std::size_t{places[i]} * sizeof(Cell);
    std::byte* const value = values + i * sizeof(Cell);
    const Cell old = Ops::load(cell), now = Ops::advance(old, Ops::load(value));
    Ops::store(old_values + i * sizeof(Cell), old);
    Ops::store(value, now);
    if constexpr (kWrites) Ops::store(cell, now);
    if ((i + 1) % kPieceBytes == 0) {
      digest.update(Bytes(changes.values).subspan(hashed, kPieceBytes * sizeof(Cell)));
      hashed += kPieceBytes * sizeof(Cell);
    }
  });
  digest.update(Bytes(changes.values).subspan(hashed));
  return digest.digest();
}

template <CellKind Kind>
std::size_t resolve_in(CellChanges& changes, std::size_t first, std::size_t first_cell, MutableBytes window) {
  using Ops = CellOps<Kind>;
  constexpr std::size_t kCellBytes = sizeof(typename Ops::Cell);
  const std::size_t end = first_cell + window.size() / kCellBytes;
  std::size_t i = first;
  for (; i < changes.cells.size() && changes.cells[i] < end; ++i) {
    std::byte* const cell = window.data() + (changes.cells[i] - first_cell) * kCellBytes;
    std::byte* const value = changes.values.data() + i * kCellBytes;
    const auto now = Ops::advance(Ops::load(cell), Ops::load(value));
    Ops::store(cell, now);
    Ops::store(value, now);
  }
  return i;
}

}  // namespace

Checksum apply_steps(CellKind kind, std::byte* cells, CellChanges& changes, std::byte* old_values) {
  return with_cell_kind(kind, [&]<CellKind Kind>() { return resolve<Kind>(cells, changes, old_values); });
}

std::size_t resolve_window(CellKind kind, CellChanges& changes, std::size_t first, std::size_t first_cell,
                           MutableBytes window) {
  return with_cell_kind(kind, [&]<CellKind Kind>() { return resolve_in<Kind>(changes, first, first_cell, window); });
}

void read_cells(std::span<const std::uint32_t> cells, std::size_t cell_bytes, const std::byte* range,
                std::byte* values) {
  with_cell_bytes(cell_bytes, [&]<unsigned CellBytes>() {
    with_prefetch<false>(cells, CellBytes, range, [=](std::size_t i) {
      std::memcpy(values + i * CellBytes, range + std::size_t{cells[i]} * CellBytes, CellBytes);
    });
  });
}

bool exchange_cells(std::span<const std::uint32_t> cells, std::size_t cell_bytes, const std::byte* values,
                    std::byte* range, std::byte* old_values) {
  return with_cell_bytes(cell_bytes, [=]<unsigned CellBytes>() {
    using Cell = typename CellInt<CellBytes>::Unsigned;
    bool all_differ = true;
    with_prefetch<true>(cells, CellBytes, range, [&](std::size_t i) {
      std::byte* const cell = range + std::size_t{cells[i]} * CellBytes;
      Cell old, now;
      std::memcpy(&old, cell, CellBytes);
      std::memcpy(&now, values + i * CellBytes, CellBytes);
      std::memcpy(old_values + i * CellBytes, &old, CellBytes);
      if (now == old) {
        all_differ = false;
      } else {
        std::memcpy(cell, &now, CellBytes);
      }
    });
    return all_differ;
  });
}

void write_changes(const CellChanges& changes, std::size_t cell_bytes, std::byte* range) {
  with_cell_bytes(cell_bytes, [&]<unsigned CellBytes>() {
    const std::byte* const values = changes.values.data();
    with_prefetch<true>(changes.cells, CellBytes, range, [=, cells = changes.cells.data()](std::size_t i) {
      std::memcpy(range + std::size_t{cells[i]} * CellBytes, values + i * CellBytes, CellBytes);
    });
  });
}

}  // namespace weightcast
