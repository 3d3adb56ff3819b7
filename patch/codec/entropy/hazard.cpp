#include "patch/codec/entropy/hazard.h"

#include <algorithm>

#include "patch/codec/entropy/fixed_math.h"

namespace weightcast {
namespace {

// Half a change is assumed where nothing was counted, so that no class is certain; KT's estimator (Krichevsky and
// Trofimov, 1981).
constexpr double kPriorCount = 0.5;
// 1 - exp(-6) = 99.75 %: beyond it a cell costs 0.004 bits more than it need, and every doubling of the greatest hazard
// takes a bit of precision from the small ones.
constexpr double kHazardMax = 6;

double hazard_of(double cells, double changed) {
  return portable_ln((cells + 2 * kPriorCount) / (cells - changed + kPriorCount));
}

double bits_of(double cells, double changed) {
  const double unchanged = cells - changed;
  double bits = 0;
  if (changed > 0) bits -= changed * portable_log2(changed / cells);
  if (unchanged > 0) bits -= unchanged * portable_log2(unchanged / cells);
  return bits;
}

struct ClassCounts {
  std::array<double, kHazardClasses> cells{};
  std::array<double, kHazardClasses> changed{};
};

ClassCounts classify(const KeyCounts& counts, unsigned key_low) {
  HazardModel window;
  window.key_low = std::uint8_t(key_low);
  ClassCounts classes;
  for (unsigned key = 0; key < 256; ++key) {
    classes.cells[window.class_of(key)] += counts.cells[key];
    classes.changed[window.class_of(key)] += counts.changed[key];
  }
  return classes;
}

double bits_of(const ClassCounts& classes) {
  double bits = 0;
  for (unsigned c = 0; c < kHazardClasses; ++c) bits += bits_of(classes.cells[c], classes.changed[c]);
  return bits;
}

// Keys outside the window share its end classes; which end can bear it is a matter of the counts.
unsigned best_window(const KeyCounts& counts) {
  unsigned first = 256, last = 0;
  for (unsigned key = 0; key < 256; ++key) {
    if (counts.cells[key] == 0) continue;
    first = std::min(first, key);
    last = key;
  }
  if (first > last || last - first < kHazardClasses) return std::min(first, 255u) & 0xff;
  unsigned best = first;
  double best_bits = 0;
  for (unsigned low = first; low + kHazardClasses <= last + 1; ++low) {
    const double bits = bits_of(classify(counts, low));
    if (low == first || bits < best_bits) {
      best = low;
      best_bits = bits;
    }
  }
  return best;
}

}  // namespace

HazardModel fit_hazard(const KeyCounts& counts) {
  HazardModel model;
  model.key_low = std::uint8_t(best_window(counts));
  const ClassCounts classes = classify(counts, model.key_low);
  std::array<double, kHazardClasses> hazards{};
  double greatest = 0;
  for (unsigned c = 0; c < kHazardClasses; ++c) {
    if (classes.cells[c] == 0) continue;
    hazards[c] = std::min(hazard_of(classes.cells[c], classes.changed[c]), kHazardMax);
    greatest = std::max(greatest, hazards[c]);
  }
  unsigned scale_bits = kScaleBitsMax;
  while (scale_bits > kScaleBitsMin && greatest * double(1u << scale_bits) > 65535) --scale_bits;
  model.scale_bits = std::uint8_t(scale_bits);
  for (unsigned c = 0; c < kHazardClasses; ++c) {
    const double units = hazards[c] * double(1u << scale_bits) + 0.5;
    model.weights[c] = std::uint16_t(std::clamp(units, 1.0, 65535.0));
  }
  return model;
}

double position_bits(const KeyCounts& counts, const HazardModel& model) {
  return bits_of(classify(counts, model.key_low));
}

void write_hazard(const HazardModel& model, ByteWriter& out) {
  out.fixed(model.key_low);
  out.fixed(model.scale_bits);
  for (const std::uint16_t weight : model.weights) out.varint(weight);
}

bool read_hazard(ByteReader& in, HazardModel& model) {
  model.key_low = in.fixed<std::uint8_t>();
  model.scale_bits = in.fixed<std::uint8_t>();
  if (model.scale_bits < kScaleBitsMin || model.scale_bits > kScaleBitsMax) return false;
  for (std::uint16_t& weight : model.weights) {
    const std::uint64_t units = in.varint();
    if (units == 0 || units > 65535) return false;
    weight = std::uint16_t(units);
    // A cell far longer than the curve reaches would let few bytes stand for endless escapes.
    if (units > (std::uint64_t{8} << model.scale_bits)) return false;
  }
  return in.ok();
}

}  // namespace weightcast
