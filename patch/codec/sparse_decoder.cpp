#include <algorithm>
#include <cstring>

#include "patch/codec/entropy/group_search.h"
#include "patch/codec/sparse.h"

namespace weightcast {
namespace {

Error corrupt(const char* what) {
  return fail(Errc::kCorrupt, Op::kDecode, std::string("sparse cells: ") + what + "; fetch the segment again");
}

}  // namespace

Result<SparseDecoder> SparseDecoder::start(CellKind kind, Bytes payload, std::uint32_t changed_cells,
                                           const Kernels& kernels) {
  if (changed_cells == 0) return corrupt("no cell changes");
  ByteReader reader(payload);
  HazardModel model;
  StepDecoder steps;
  if (!read_hazard(reader, model) || !steps.read(reader)) return corrupt("a model is damaged");
  const Bytes positions = reader.bytes(reader.varint());
  const Bytes values = reader.bytes(reader.remaining());
  if (!reader.ok()) return corrupt("it is cut short");
  SparseDecoder decoder(kind, kernels, model, std::move(steps),
                        {RansDecoder(positions), RansDecoder(values), changed_cells});
  if (!decoder.draw(decoder.place_)) return corrupt("the positions are cut short");
  return decoder;
}

// All of the loop over changes is inlined by force: a call would put what it has in registers on the stack.

// Draws the place of the next change. False where the stream has ended.
[[gnu::always_inline]] inline bool SparseDecoder::draw(Place& place) const {
  std::uint32_t slot = place.positions.slot(kGapBits);
  while (slot >= GapCurve::escape_start()) {
    place.positions.consume(GapCurve::escape_start(), GapCurve::escape_frequency(), kGapBits);
    if (!place.positions.ok()) return false;
    place.origin += curve_.reach();
    slot = place.positions.slot(kGapBits);
  }
  place.target = place.origin + curve_.inverse(slot);
  return true;
}

template <CellKind Kind>
[[gnu::always_inline]] inline void SparseDecoder::change(RansDecoder& values, std::byte* at) const {
  using Ops = CellOps<Kind>;
  using Cell = typename Ops::Cell;
  const Cell cell = Ops::load(at);
  const unsigned token = steps_.take_token(values, model_.class_of(Ops::key(cell)));
  const unsigned bits = extra_bits_of(token);
  Cell magnitude = Cell((token >> 1) + 1);
  if (bits > 0) [[unlikely]]
    magnitude = Cell(join_step(token, take_extra(values, bits)));
  const Cell inward = Cell(Cell(0) - Cell(token & 1));
  Ops::store(at, Ops::advance(cell, Ops::negate_where(inward, magnitude)));
}

// Changes the cells of one chunk that lies in `cells` and whose old values gave `chunk`. False where a stream has
// ended.
template <CellKind Kind>
[[gnu::always_inline]] inline bool SparseDecoder::change_chunk(const WeightedChunk& chunk, std::size_t first_cell,
                                                               std::byte* cells, ChunkPrefetch<true>& prefetch,
                                                               Place& place) const {
  std::size_t b = 0;
  for (; place.left > 0 && place.target - place.line < chunk.total();) {
    prefetch.step();
    const auto point = std::uint32_t(place.target - place.line);
    b = find_block(chunk.block_begins.data(), b, point);
    const std::uint32_t* sums = chunk.group_sums.data() + b * kBlockGroups;
    const std::uint32_t first = chunk.block_begins[b] + sums[0], second = first + sums[1], third = second + sums[2];
    static_assert(kBlockGroups == 4);
    // By masks: which group it is, is as good as random, and a branch would be guessed wrong.
    const std::uint32_t in_second = point >= first, in_third = point >= second, in_fourth = point >= third;
    const std::size_t g = b * kBlockGroups + in_second + in_third + in_fourth;
    const std::uint32_t group_begin =
        chunk.block_begins[b] + (sums[0] & (0 - in_second)) + (sums[1] & (0 - in_third)) + (sums[2] & (0 - in_fourth));
    const GroupHit hit = find_in_group(chunk.weights.data() + g * kGroupCells, point - group_begin);
    const std::uint64_t begin = place.line + group_begin + hit.before;
    const std::uint64_t end = place.line + group_begin + hit.end;
    const std::size_t cell = g * kGroupCells + hit.index;
    const std::uint32_t start = begin > place.origin ? curve_.at(begin - place.origin) : 0;
    place.positions.consume(start, curve_.at(end - place.origin) - start, kGapBits);
    place.origin = end;
    constexpr std::size_t kCellBytes = sizeof(typename CellOps<Kind>::Cell);
    std::byte* const at = cells + cell * kCellBytes;
    change<Kind>(place.values, at);
    if (listed_cells_ != nullptr) {
      const std::size_t change = changed_cells_ - place.left;
      listed_cells_[change] = std::uint32_t(first_cell + cell);
      std::memcpy(listed_values_ + change * kCellBytes, at, kCellBytes);
    }
    if (--place.left > 0 && !draw(place)) return false;
  }
  place.line += chunk.total();
  return true;
}

template <CellKind Kind>
Status SparseDecoder::next_cells(Bytes before, MutableBytes after, ChecksumStream& digest) {
  constexpr std::size_t kChunkBytes = kChunkCells * sizeof(typename CellOps<Kind>::Cell);
  WeightedChunk chunk;
  Place place = place_;
  for (std::size_t offset = 0; offset < before.size(); offset += kChunkBytes) {
    const std::size_t bytes = std::min(kChunkBytes, before.size() - offset);
    std::byte* cells = after.data() + offset;
    ChunkPrefetch<true> prefetch(before.data() + offset + kChunkBytes, cells + kChunkBytes, kChunkBytes);
    prefetch.step(2);
    kernels_->weigh(Kind, before.data() + offset, bytes / sizeof(typename CellOps<Kind>::Cell), model_, chunk);
    prefetch.step(2);
    // memmove, because GCC turns a short memcpy into a string instruction that takes three times as long here.
    if (after.data() != before.data()) std::memmove(cells, before.data() + offset, bytes);
    if (!change_chunk<Kind>(chunk, next_cell_, cells, prefetch, place)) return corrupt("the positions are cut short");
    update_digest(digest, Bytes(cells, bytes), prefetch);
    prefetch.finish();
    next_cell_ += bytes / sizeof(typename CellOps<Kind>::Cell);
  }
  place_ = place;
  return {};
}

Status SparseDecoder::next(Bytes before, MutableBytes after, ChecksumStream& digest) {
  WC_CHECK(before.size() == after.size() && before.size() % geometry_of(kind_).bytes == 0);
  return with_cell_kind(kind_, [&]<CellKind Kind>() { return next_cells<Kind>(before, after, digest); });
}

void SparseDecoder::list_changes(CellChanges& changes) {
  changes.cells.resize(changed_cells_);
  changes.values.resize(std::size_t{changed_cells_} * geometry_of(kind_).bytes);
  listed_cells_ = changes.cells.data();
  listed_values_ = changes.values.data();
}

Status SparseDecoder::finish() const {
  if (place_.left > 0) return corrupt("changes are left over after the last cell");
  if (!place_.positions.finished() || !place_.values.finished()) {
    return corrupt("a stream does not end where it should");
  }
  return {};
}

}  // namespace weightcast
