#include "patch/kernels/kernels.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "patch/codec/entropy/group_search.h"
#include "tests/patch/cells.h"

namespace weightcast {
namespace {

HazardModel random_model(std::mt19937_64& random) {
  HazardModel model;
  model.key_low = std::uint8_t(random() % 256);
  for (auto& weight : model.weights) weight = std::uint16_t(1 + random() % 65535);
  return model;
}

TEST(Kernels, SayWhichOnesThisProcessorRuns) {
  EXPECT_EQ(available_kernels()[0]->name, "scalar");
  for (std::size_t i = available_kernels().size(); i < 3; ++i) std::printf("one set of kernels was not compared\n");
}

RC_GTEST_PROP(Kernels, AllEqualScalar, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const CellKind kind = *rc::gen::elementOf(test::kAllKinds);
  const std::size_t count = *rc::gen::element<std::size_t>(0, 1, 31, 32, 33, 1000, kChunkCells - 1, kChunkCells);
  const unsigned misaligned = *rc::gen::inRange(0, 8);
  const double density = *rc::gen::element(0.0, 0.01, 0.3, 1.0);
  const auto pair = test::make_cells(kind, count + 8, test::Structure::kIndependent, density, random());
  const std::byte* before = pair.before.data() + misaligned;
  const std::byte* after = pair.after.data() + misaligned;
  const HazardModel model = random_model(random);
  const auto expected = std::make_unique<WeightedChunk>(), found = std::make_unique<WeightedChunk>();
  scalar_kernels().weigh(kind, before, count, model, *expected);
  ChunkChanges expected_changes, found_changes;
  const unsigned width = geometry_of(kind).bytes;
  const std::size_t changes = scalar_kernels().diff(width, before, after, count, expected_changes);
  for (const Kernels* kernels : available_kernels()) {
    std::memset(static_cast<void*>(found.get()), 0xcd, sizeof *found);
    kernels->weigh(kind, before, count, model, *found);
    RC_ASSERT(found->weights == expected->weights);
    RC_ASSERT(found->group_sums == expected->group_sums);
    RC_ASSERT(found->block_begins == expected->block_begins);
    RC_ASSERT(kernels->diff(width, before, after, count, found_changes) == changes);
    RC_ASSERT(std::equal(expected_changes.begin(), expected_changes.begin() + std::ptrdiff_t(changes),
                         found_changes.begin()));
  }
}

RC_GTEST_PROP(Kernels, SumAndCountAsScalarDoes, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const std::size_t bytes = *rc::gen::element<std::size_t>(0, 8, 248, 256, 264, 4096, 5000);
  const std::size_t misaligned = *rc::gen::inRange<std::size_t>(0, 8);
  std::vector<std::byte> cells(bytes + misaligned);
  for (std::byte& byte : cells) byte = std::byte(random() % 4 == 0 ? 0x7f : random());
  std::vector<std::uint32_t> weights(bytes / sizeof(std::uint32_t));
  for (std::uint32_t& weight : weights) weight = std::uint32_t(random());
  const std::byte* const at = cells.data() + misaligned;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, at + i * sizeof word, sizeof word);
    sum += std::uint64_t{word} * weights[i];
  }
  const unsigned width = *rc::gen::element(1u, 2u, 4u, 8u);
  const std::uint64_t mask = width == 1 ? 0x7c : std::uint64_t{0x7f} << 8 * (width - 1);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < bytes / width; ++i) {
    std::uint64_t cell = 0;
    std::memcpy(&cell, at + i * width, width);
    count += (cell & mask) == mask;
  }
  for (const Kernels* kernels : available_kernels()) {
    RC_ASSERT(kernels->weighted_sum(at, weights.data(), weights.size()) == sum);
    RC_ASSERT(kernels->count_equal(width, mask, mask, at, bytes / width) == count);
  }
}

RC_GTEST_PROP(Kernels, SplitAndMergeAsScalarDoes, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const unsigned width = *rc::gen::element(1u, 2u, 4u, 8u);
  const std::size_t count = *rc::gen::element<std::size_t>(0, 1, 31, 32, 33, 1000);
  const bool rotate = *rc::gen::arbitrary<bool>();
  const bool has_before = *rc::gen::arbitrary<bool>();
  const std::size_t misaligned = *rc::gen::inRange<std::size_t>(0, 8);
  std::vector<std::byte> cells(count * width + misaligned), before(cells.size());
  for (std::byte& byte : cells) byte = std::byte(random());
  for (std::byte& byte : before) byte = std::byte(random());
  const std::byte* old = has_before ? before.data() + misaligned : nullptr;
  const auto split = [&](const Kernels& kernels) {
    std::vector<std::byte> planes(count * width);
    std::array<std::byte*, kCellBytesMax> at{};
    for (unsigned p = 0; p < width; ++p) at[p] = planes.data() + p * count;
    kernels.split(width, rotate, cells.data() + misaligned, old, count, at.data());
    return planes;
  };
  const std::vector<std::byte> expected = split(scalar_kernels());
  for (const Kernels* kernels : available_kernels()) {
    RC_ASSERT(split(*kernels) == expected);
    std::array<const std::byte*, kCellBytesMax> at{};
    for (unsigned p = 0; p < width; ++p) at[p] = expected.data() + p * count;
    // Over the old cells, as a change in place does.
    std::vector<std::byte> merged = before;
    kernels->merge(width, rotate, at.data(), has_before ? merged.data() + misaligned : nullptr, count,
                   merged.data() + misaligned);
    RC_ASSERT(std::equal(merged.begin() + std::ptrdiff_t(misaligned), merged.end(),
                         cells.begin() + std::ptrdiff_t(misaligned)));
  }
}

RC_GTEST_PROP(Kernels, AgreeOnTheRangeOfBytes, ()) {
  const auto bytes =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint8_t>>(rc::gen::arbitrary<std::uint8_t>()));
  std::vector<std::uint8_t> data(*rc::gen::element<std::size_t>(1, 7, 31, 32, 33, 127, 128, 129, 5000), bytes[0]);
  for (const std::uint8_t byte : bytes) data[*rc::gen::inRange<std::size_t>(0, data.size())] = byte;
  const auto [least, greatest] = std::ranges::minmax(data);
  for (const Kernels* kernels : available_kernels()) {
    const ByteRange range = kernels->range(reinterpret_cast<const std::byte*>(data.data()), data.size());
    RC_ASSERT(range.least == least && range.greatest == greatest);
  }
}

RC_GTEST_PROP(GroupSearch, FindsTheCellThatAPointFallsInto, ()) {
  alignas(16) std::array<std::uint16_t, kGroupCells> weights;
  std::uint32_t total = 0;
  for (auto& weight : weights) {
    weight = std::uint16_t(*rc::gen::weightedOneOf<int>({{3, rc::gen::inRange(1, 65536)}, {1, rc::gen::just(0)}}));
    total += weight;
  }
  RC_PRE(total > 0u);
  const auto point = std::uint32_t(*rc::gen::inRange<std::int64_t>(0, total));
  const GroupHit hit = find_in_group(weights.data(), point);
  RC_ASSERT(hit.before <= point);
  RC_ASSERT(point < hit.before + weights[hit.index]);
  RC_ASSERT(sum_in_group(weights.data(), hit.index) == hit.before);
}

RC_GTEST_PROP(GapCurve, InverseIsTheGreatestDistanceNotBeyondTheSlot, ()) {
  const GapCurve curve(unsigned(*rc::gen::inRange<int>(kScaleBitsMin, kScaleBitsMax + 1)));
  const auto slot = std::uint32_t(*rc::gen::inRange<std::int64_t>(0, GapCurve::escape_start()));
  const std::uint64_t distance = curve.inverse(slot);
  RC_ASSERT(distance < curve.reach());
  RC_ASSERT(curve.at(distance) <= slot);
  RC_ASSERT(curve.at(distance + 1) > slot);
}

}  // namespace
}  // namespace weightcast
