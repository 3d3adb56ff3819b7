#include "patch/codec/sparse.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "patch/codec/entropy/fixed_math.h"
#include "patch/codec/entropy/group_search.h"
#include "patch/codec/prefetch.h"

namespace weightcast {
namespace {

// Enough for every class that matters to see about a hundred changes at 1 % density, which costs 0.1 % of the bits;
// 3 % of a default segment.
constexpr std::size_t kSampleChunks = 64;
// A second look at the old cells takes a third of the encoder's time: only for a gain that shows.
constexpr double kRefitGain = 0.985;
constexpr double kRefitBitsMin = 8 * 512;

template <CellKind Kind>
StepToken split_steps(typename CellOps<Kind>::Cell steps) {
  using Ops = CellOps<Kind>;
  const auto inward = Ops::sign_mask(steps);
  return split_step(Ops::negate_where(inward, steps), (inward & 1) != 0);
}

// Fewer blocks are touched than half of what independent changes would touch.
bool is_clustered(std::uint32_t changed, std::uint32_t touched_blocks, std::size_t cells) {
  double untouched = 1 - double(changed) / double(cells);
  for (int i = 0; i < 5; ++i) untouched *= untouched;  // to the power of kBlockCells
  static_assert(kBlockCells == 32);
  return touched_blocks < 0.5 * (1 - untouched) * double(cells / kBlockCells);
}

}  // namespace

template <CellKind Kind>
void SparseEncoder::sample(Bytes before, Bytes after) {
  using Ops = CellOps<Kind>;
  constexpr std::size_t kWidth = sizeof(typename Ops::Cell);
  const std::size_t cells = before.size() / kWidth, chunks = (cells + kChunkCells - 1) / kChunkCells;
  const std::size_t stride = std::max<std::size_t>(chunks / kSampleChunks, 1);
  sampled_ = {};
  sampled_cells_ = 0;
  // Two tables, because neighbours tend to have equal keys and would wait for each other's increment.
  std::array<std::array<std::uint32_t, 256>, 2> seen{};
  for (std::size_t chunk = stride / 2; chunk < chunks; chunk += stride) {
    const std::size_t begin = chunk * kChunkCells, count = std::min(kChunkCells, cells - begin);
    const std::byte* old_cells = before.data() + begin * kWidth;
    const std::size_t changes = kernels_.diff(kWidth, old_cells, after.data() + begin * kWidth, count, changed_);
    for (std::size_t i = 0; i < count; ++i) ++seen[i & 1][Ops::key(Ops::load(old_cells + i * kWidth))];
    sampled_cells_ += count;
    for (std::size_t i = 0; i < changes; ++i) ++sampled_.changed[Ops::key(Ops::load(old_cells + changed_[i] * kWidth))];
  }
  for (unsigned key = 0; key < 256; ++key) sampled_.cells[key] = seen[0][key] + seen[1][key];
}

// Inlined by force: a third of the time of the loop that calls it would be the call.
[[gnu::always_inline]] inline void SparseEncoder::position_cell(std::size_t cell, std::uint64_t chunk_begin,
                                                                unsigned hazard_class, std::size_t change) {
  const std::size_t group = cell / kGroupCells;
  const std::size_t block = cell / kBlockCells;
  const std::uint32_t inside = chunk_.block_begins[block] +
                               sum_of_groups(chunk_.group_sums.data() + block * kBlockGroups, group % kBlockGroups) +
                               sum_in_group(chunk_.weights.data() + group * kGroupCells, cell % kGroupCells);
  const std::uint64_t begin = chunk_begin + inside;
  if (begin - origin_ >= curve_.reach()) [[unlikely]] {
    const std::uint64_t count = (begin - origin_) / curve_.reach();
    escapes_.push_back({change, std::size_t(count)});
    origin_ += count * curve_.reach();
  }
  places_[change] = {std::uint32_t(begin - origin_) | hazard_class << Place::kClassShift};
  origin_ = begin + chunk_.weights[cell];
}

template <CellKind Kind>
[[gnu::always_inline]] inline unsigned SparseEncoder::collect(const std::byte* before, const std::byte* after,
                                                              std::size_t change) {
  using Ops = CellOps<Kind>;
  const auto old_cell = Ops::load(before);
  const unsigned key = Ops::key(old_cell);
  const auto steps = Ops::step(old_cell, Ops::load(after));
  const unsigned hazard_class = model_.class_of(key);
  ++exact_.changed[key];
  ++step_counts_[hazard_class][split_steps<Kind>(steps).token];
  Ops::store(steps_.data() + change * sizeof(steps), steps);
  return hazard_class;
}

template <CellKind Kind>
[[gnu::always_inline]] inline void SparseEncoder::scan_chunk(const std::byte* old_cells, const std::byte* new_cells,
                                                             std::size_t count, std::size_t changes,
                                                             ChunkPrefetch<false>& prefetch) {
  constexpr std::size_t kWidth = sizeof(typename CellOps<Kind>::Cell);
  if (changed_cells_ + changes > kChangesMax) {
    changed_cells_ += changes;
    return;
  }
  prefetch.step(2);
  kernels_.weigh(Kind, old_cells, count, model_, chunk_);
  if (places_.size() < changed_cells_ + changes) {
    const std::size_t wanted = std::max(changed_cells_ + changes, places_.size() + places_.size() / 2);
    resize_changes(std::min(wanted, kChangesMax), kWidth);
  }
  std::size_t block = kChunkBlocks;
  for (std::size_t i = 0; i < changes; ++i) {
    prefetch.step();
    const std::size_t cell = changed_[i];
    touched_blocks_ += cell / kBlockCells != block;
    block = cell / kBlockCells;
    const std::size_t change = changed_cells_ + i;
    const unsigned hazard_class = collect<Kind>(old_cells + cell * kWidth, new_cells + cell * kWidth, change);
    position_cell(cell, line_, hazard_class, change);
  }
  changed_cells_ += changes;
  line_ += chunk_.total();
}

template <CellKind Kind>
void SparseEncoder::scan(Bytes before, Bytes after) {
  constexpr std::size_t kWidth = sizeof(typename CellOps<Kind>::Cell);
  const std::size_t cells = before.size() / kWidth;
  exact_ = {};
  step_counts_ = {};
  escapes_.clear();
  line_ = 0;
  origin_ = 0;
  changed_cells_ = 0;
  touched_blocks_ = 0;
  ChecksumStream digest;
  for (std::size_t begin = 0; begin < cells; begin += kChunkCells) {
    const std::size_t count = std::min(kChunkCells, cells - begin);
    const std::byte* old_cells = before.data() + begin * kWidth;
    const std::byte* new_cells = after.data() + begin * kWidth;
    ChunkPrefetch<false> prefetch(old_cells + kChunkCells * kWidth, new_cells + kChunkCells * kWidth,
                                  kChunkCells * kWidth);
    update_digest(digest, Bytes(new_cells, count * kWidth), prefetch);
    prefetch.step(2);
    const std::size_t changes = kernels_.diff(kWidth, old_cells, new_cells, count, changed_);
    scan_chunk<Kind>(old_cells, new_cells, count, changes, prefetch);
    prefetch.finish();
  }
  result_digest_ = digest.digest();
}

void SparseEncoder::resize_changes(std::size_t count, std::size_t cell_bytes) {
  places_.resize(count);
  steps_.resize(count * cell_bytes);
}

void SparseEncoder::release() {
  places_ = std::vector<Place>();
  steps_ = std::vector<std::byte>();
}

void SparseEncoder::reserve_changes(std::size_t cells, std::size_t cell_bytes) {
  std::uint64_t changed = 0;
  for (const std::uint32_t count : sampled_.changed) changed += count;
  const std::uint64_t expected = changed * cells / std::max<std::size_t>(sampled_cells_, 1);
  const std::size_t wanted = std::size_t(std::min<std::uint64_t>(expected + expected / 16, kChangesMax));
  // First, so that old and new are never held together.
  if (places_.capacity() < wanted || steps_.capacity() < wanted * cell_bytes) release();
  // In any case: what is left of the last range may have been for narrower cells.
  resize_changes(wanted, cell_bytes);
}

double SparseEncoder::coded_position_bits() const {
  // A position is coded in as many bits as the model gives to the way to it, which adds up to the way to the last, less
  // the changed cells themselves, and to the cell's own change.
  const double nat = double(1u << model_.scale_bits);
  double nats = double(origin_) / nat;
  double bits = 0;
  for (unsigned key = 0; key < 256; ++key) {
    if (exact_.changed[key] == 0) continue;
    const std::uint16_t weight = model_.weights[model_.class_of(key)];
    nats -= exact_.changed[key] * (weight / nat);
    bits -= exact_.changed[key] * portable_log2(double(curve_.at(weight)) / double(1u << kGapBits));
  }
  return bits + nats * portable_log2(2.71828182845904523536);
}

bool SparseEncoder::refit(std::size_t cells) {
  const double coded_bits = coded_position_bits();
  if (coded_bits < kRefitBitsMin) return false;
  KeyCounts counts = exact_;
  for (unsigned key = 0; key < 256; ++key) {
    const std::uint64_t scaled = std::uint64_t{sampled_.cells[key]} * cells / std::max<std::size_t>(sampled_cells_, 1);
    counts.cells[key] = std::max(std::uint32_t(scaled), exact_.changed[key]);
  }
  const HazardModel better = fit_hazard(counts);
  if (better == model_ || position_bits(counts, better) > kRefitGain * coded_bits) return false;
  model_ = better;
  return true;
}

template <CellKind Kind>
SparseEncoder::Outcome SparseEncoder::outcome_of(std::size_t cells, std::vector<std::byte>& out) {
  Outcome outcome{std::uint32_t(changed_cells_), result_digest_, false, changed_cells_ > kChangesMax};
  if (changed_cells_ == 0 || outcome.too_many) return outcome;
  outcome.clustered = is_clustered(outcome.changed_cells, touched_blocks_, cells);
  write<Kind>(out);
  return outcome;
}

SparseEncoder::Outcome SparseEncoder::encode(CellKind kind, Bytes before, Bytes after, std::vector<std::byte>& out) {
  WC_CHECK(before.size() == after.size() && before.size() % geometry_of(kind).bytes == 0);
  const std::size_t cells = before.size() / geometry_of(kind).bytes;
  return with_cell_kind(kind, [&]<CellKind Kind>() {
    sample<Kind>(before, after);
    model_ = fit_hazard(sampled_);
    reserve_changes(cells, geometry_of(Kind).bytes);
    curve_ = GapCurve(model_.scale_bits);
    scan<Kind>(before, after);
    if (changed_cells_ <= kChangesMax && refit(cells)) {
      curve_ = GapCurve(model_.scale_bits);
      scan<Kind>(before, after);
    }
    return outcome_of<Kind>(cells, out);
  });
}

// Both streams in one loop: each symbol waits for the one before it in its own stream only. No call in it, so that the
// states stay in registers.
template <CellKind Kind>
void SparseEncoder::put_batch(std::size_t first, std::size_t last, const StepCoder& steps) {
  using Ops = CellOps<Kind>;
  position_coder_.make_room(last - first);
  step_coder_.make_room((last - first) * kStepSymbolsMax);
  RansEncoder positions = std::move(position_coder_), values = std::move(step_coder_);
  const GapCurve curve = curve_;
  for (std::size_t i = last; i-- > first;) {
    const Place place = places_[i];
    const std::uint32_t start = curve.at(place.distance());
    const std::uint32_t frequency = curve.at(place.distance() + model_.weights[place.hazard_class()]) - start;
    positions.put(start, frequency, rans_reciprocal(frequency), kGapBits);
    const StepToken split = split_steps<Kind>(Ops::load(steps_.data() + i * sizeof(typename Ops::Cell)));
    if (split.extra_bits > 0) [[unlikely]]
      put_extra(values, split.extra, split.extra_bits);
    steps.put_token(values, split.token, place.hazard_class());
  }
  position_coder_ = std::move(positions);
  step_coder_ = std::move(values);
}

template <CellKind Kind>
void SparseEncoder::put_changes(std::size_t first, std::size_t last, const StepCoder& steps) {
  // Room is made for the most that a batch can take, so that it must not be large.
  constexpr std::size_t kBatch = 1024;
  while (last > first) {
    const std::size_t begin = last - std::min(last - first, kBatch);
    put_batch<Kind>(begin, last, steps);
    last = begin;
  }
}

template <CellKind Kind>
void SparseEncoder::write(std::vector<std::byte>& out) {
  const StepModel steps = fit_steps(step_counts_);
  const StepCoder step_coder(steps);
  std::size_t last = changed_cells_;
  for (std::size_t e = escapes_.size(); e-- > 0; last = escapes_[e].change) {
    put_changes<Kind>(escapes_[e].change, last, step_coder);
    position_coder_.make_room(escapes_[e].count);
    for (std::size_t n = escapes_[e].count; n > 0; --n) {
      constexpr std::uint32_t kFrequency = GapCurve::escape_frequency();
      position_coder_.put(GapCurve::escape_start(), kFrequency, rans_reciprocal(kFrequency), kGapBits);
    }
  }
  put_changes<Kind>(0, last, step_coder);
  ByteWriter writer(out);
  write_hazard(model_, writer);
  write_steps(steps, writer);
  writer.varint(position_coder_.size_bytes());
  out.reserve(out.size() + position_coder_.size_bytes() + step_coder_.size_bytes());
  position_coder_.finish(out);
  step_coder_.finish(out);
}

}  // namespace weightcast
