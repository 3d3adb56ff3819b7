#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "patch/codec/byte_io.h"
#include "patch/codec/entropy/hazard.h"
#include "patch/codec/entropy/rans.h"

namespace weightcast {

// A new value is coded as the number of steps from the old one (CellOps::step), split into a token, which has a
// probability, and extra bits, which are uniform. A token is 2 * t + (1 if the steps lead towards zero). With
// v = |steps| - 1, t is v below 8. Above, there are two values of t per power of two, and the bits of v below the two
// highest are the extra bits.

inline constexpr unsigned kStepTokens = 260;
inline constexpr unsigned kStepTableBits = 12;

struct StepToken {
  std::uint16_t token;
  std::uint8_t extra_bits;
  std::uint64_t extra;
};

/// `magnitude` >= 1.
[[nodiscard, gnu::always_inline]] inline StepToken split_step(std::uint64_t magnitude, bool inward) {
  const std::uint64_t v = magnitude - 1;
  if (v < 8) return {std::uint16_t(2 * v + inward), 0, 0};
  const unsigned top = 63 - unsigned(std::countl_zero(v));
  const unsigned t = 8 + (top - 3) * 2 + unsigned((v >> (top - 1)) & 1);
  return {std::uint16_t(2 * t + inward), std::uint8_t(top - 1), v & ((std::uint64_t{1} << (top - 1)) - 1)};
}

/// Number of extra bits that follow `token`.
[[nodiscard]] constexpr unsigned extra_bits_of(unsigned token) {
  const unsigned t = token >> 1;
  return t < 8 ? 0 : (t - 8) / 2 + 2;
}

/// The magnitude, at least 1; wraps to 0 for 2^64, which no cell can step.
[[nodiscard]] constexpr std::uint64_t join_step(unsigned token, std::uint64_t extra) {
  const unsigned t = token >> 1;
  if (t < 8) return t + 1;
  const unsigned below = (t - 8) / 2 + 2;
  return ((std::uint64_t{2} | ((t - 8) & 1)) << below | extra) + 1;
}

/// Symbols that one step may take: its token and 62 extra bits, sixteen at a time.
inline constexpr std::size_t kStepSymbolsMax = 5;

/// Extra bits go low part first, sixteen at a time: put in reverse, as all of an rANS stream.
inline void put_extra(RansEncoder& encoder, std::uint64_t extra, unsigned bits) {
  const unsigned whole = bits / 16, rest = bits % 16;
  if (rest > 0) encoder.put_uniform(std::uint32_t(extra >> (16 * whole)), rest);
  for (unsigned part = whole; part-- > 0;) encoder.put_uniform(std::uint32_t((extra >> (16 * part)) & 0xffff), 16);
}

[[nodiscard]] inline std::uint64_t take_extra(RansDecoder& decoder, unsigned bits) {
  std::uint64_t extra = 0;
  unsigned done = 0;
  for (; done + 16 <= bits; done += 16) extra |= std::uint64_t{decoder.take_uniform(16)} << done;
  if (done < bits) extra |= std::uint64_t{decoder.take_uniform(bits - done)} << done;
  return extra;
}

/// Frequencies of the tokens of one table, in 1/4096.
struct StepTable {
  std::array<std::uint16_t, kStepTokens> frequency{};
  /// Of each token, then where the last one ends.
  std::array<std::uint16_t, kStepTokens + 1> start{};
};

/// How often each token occurred, by class of the old cell.
using StepCounts = std::array<std::array<std::uint32_t, kStepTokens>, kHazardClasses>;

/// One table for each run of neighbouring classes that share it.
struct StepModel {
  std::vector<StepTable> tables;
  std::array<std::uint8_t, kHazardClasses> table_of_class{};
};

/// A step model as encoding needs it.
class StepCoder {
 public:
  explicit StepCoder(const StepModel& model);

  void put_token(RansEncoder& encoder, unsigned token, unsigned hazard_class) const {
    const Symbol& symbol = symbols_[table_of_class_[hazard_class] * kStepTokens + token];
    encoder.put(symbol.start, symbol.frequency, symbol.reciprocal, kStepTableBits);
  }

 private:
  struct Symbol {
    std::uint64_t reciprocal;
    std::uint16_t start;
    std::uint16_t frequency;
  };

  std::array<std::uint8_t, kHazardClasses> table_of_class_;
  std::vector<Symbol> symbols_;  // kStepTokens for each table
};

/// Splits the classes into runs with tables of their own, where that saves more than a table costs. Deterministic
/// across machines.
[[nodiscard]] StepModel fit_steps(const StepCounts& counts);

void write_steps(const StepModel& model, ByteWriter& out);

/// A step model with the lookup that decoding needs.
class StepDecoder {
 public:
  /// Returns false if the bytes are no model.
  [[nodiscard]] bool read(ByteReader& in);

  [[nodiscard, gnu::always_inline]] unsigned take_token(RansDecoder& decoder, unsigned hazard_class) const {
    const unsigned index = model_.table_of_class[hazard_class];
    const StepTable& table = model_.tables[index];
    const std::uint32_t slot = decoder.slot(kStepTableBits);
    unsigned token = first_token_[(std::size_t{index} << kFirstTokenBits) + (slot >> kSlotBits)];
    while (table.start[token + 1] <= slot) ++token;
    decoder.consume(table.start[token], table.frequency[token], kStepTableBits);
    return token;
  }

 private:
  // A token for every slot would not stay in the first-level cache; from the first of sixteen it is seldom far.
  static constexpr unsigned kSlotBits = 4;
  static constexpr unsigned kFirstTokenBits = kStepTableBits - kSlotBits;

  StepModel model_;
  std::vector<std::uint16_t> first_token_;
};

}  // namespace weightcast
