#include "bench/codec/entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace weightcast::bench {
namespace {

struct Pair {
  std::vector<std::byte> base;
  std::vector<std::byte> result;
  std::vector<TensorInfo> tensors;

  template <typename Cell>
  void add(const char* dtype, const std::vector<Cell>& before, const std::vector<Cell>& after) {
    tensors.push_back(
        {"t" + std::to_string(tensors.size()), dtype, {before.size()}, base.size(), before.size() * sizeof(Cell)});
    const auto append = [](std::vector<std::byte>& to, const std::vector<Cell>& cells) {
      const auto bytes = std::as_bytes(std::span(cells));
      to.insert(to.end(), bytes.begin(), bytes.end());
    };
    append(base, before);
    append(result, after);
  }
  [[nodiscard]] PatchEntropy entropy(EntropyScope scope = EntropyScope::kSnapshot) const {
    return measure_entropy(base, result, tensors, scope);
  }
};

TEST(PatchEntropy, IsZeroWhenNothingChanged) {
  Pair pair;
  const std::vector<std::uint16_t> cells(100, 0x3f80);
  pair.add("BF16", cells, cells);
  EXPECT_EQ(pair.entropy().changed, 0u);
  EXPECT_EQ(pair.entropy().bits_per_changed(), 0.0);
}

TEST(PatchEntropy, OfOneClassIsBinaryEntropyPlusThatOfTheSteps) {
  Pair pair;
  const std::vector<std::uint16_t> before(1024, 0x3f84);
  std::vector<std::uint16_t> after = before;
  // A quarter changes; of the changed, half go up by one, a quarter down by one, a quarter up by two: 1.5 bits.
  for (std::size_t i = 0; i < 256; ++i) after[4 * i] = i < 128 ? 0x3f85 : i < 192 ? 0x3f83 : 0x3f86;
  pair.add("BF16", before, after);
  const PatchEntropy entropy = pair.entropy();
  EXPECT_EQ(entropy.cells, 1024u);
  EXPECT_EQ(entropy.changed, 256u);
  EXPECT_NEAR(entropy.position_bits, 1024 * (0.25 * 2 + 0.75 * std::log2(4.0 / 3)), 1e-9);
  EXPECT_NEAR(entropy.value_bits, 256 * 1.5, 1e-9);
}

TEST(PatchEntropy, VanishesWhenTheExponentTellsEverything) {
  Pair pair;
  std::vector<std::uint16_t> before;
  std::vector<std::uint16_t> after;
  for (int i = 0; i < 500; ++i) {
    before.insert(before.end(), {0x3f80, 0x3c01});
    after.insert(after.end(), {0x3f80, 0x3c02});  // the small ones always move up by one
  }
  pair.add("BF16", before, after);
  EXPECT_EQ(pair.entropy().changed, 500u);
  EXPECT_EQ(pair.entropy().bits_per_changed(), 0.0);
}

TEST(PatchEntropy, CountsStepsAwayFromZeroWhateverTheSign) {
  Pair pair;
  const std::vector<std::uint16_t> before = {0x3f80, 0xbf80, 0x3f82, 0xbf82};
  const std::vector<std::uint16_t> grown = {0x3f81, 0xbf81, 0x3f83, 0xbf83};
  pair.add("BF16", before, grown);
  EXPECT_EQ(pair.entropy().bits_per_changed(), 0.0);
}

TEST(PatchEntropy, CountsTheLowBitsOfLongStepsAsIncompressible) {
  Pair pair;
  const std::vector<std::uint32_t> before(64, 0x3f800000);
  std::vector<std::uint32_t> after = before;
  for (std::uint32_t i = 0; i < 64; ++i) after[i] += 1024 + i;  // all of bit length 11
  pair.add("F32", before, after);
  EXPECT_NEAR(pair.entropy().bits_per_changed(), 10.0, 1e-9);
}

TEST(PatchEntropy, WithAModelForEachTensorSeesTensorsThatBehaveDifferently) {
  Pair pair;
  const std::vector<std::uint16_t> before(1000, 0x3f80);
  const std::vector<std::uint16_t> moved(1000, 0x3f81);
  pair.add("BF16", before, before);
  pair.add("BF16", before, moved);
  EXPECT_NEAR(pair.entropy().bits_per_changed(), 2.0,
              1e-9);  // half of the class changed: one bit for each of its cells
  EXPECT_EQ(pair.entropy(EntropyScope::kTensor).bits_per_changed(), 0.0);
}

}  // namespace
}  // namespace weightcast::bench
