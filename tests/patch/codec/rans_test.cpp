#include "patch/codec/entropy/rans.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

namespace weightcast {
namespace {

struct Symbol {
  std::uint32_t start, frequency;
  unsigned bits;
};

// As the callers have them: 28 bits for positions, 12 for steps, up to 16 for what is uniform.
Symbol random_symbol(std::mt19937_64& random) {
  const auto below = [&random](std::uint32_t limit) { return std::uint32_t(random() % limit); };
  const unsigned bits = std::array{28u, 12u, 1 + below(16)}[below(3)];
  const std::uint32_t total = 1u << bits;
  const std::uint32_t most = bits == 28 || bits == 12 ? total : 1;
  // The ends of the range as often as what lies between, at every scale.
  const std::uint32_t frequency = std::array{1u, most, most - below(std::min(most, 64u)), 1 + below(most),
                                             1 + (below(most) >> below(28))}[below(5)];
  return {below(total - frequency + 1), frequency, bits};
}

RC_GTEST_PROP(Rans, GivesBackSymbolsOfEveryFrequency, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  std::vector<Symbol> symbols(2000);
  for (Symbol& symbol : symbols) symbol = random_symbol(random);
  RansEncoder encoder;
  encoder.make_room(symbols.size());
  for (auto symbol = symbols.rbegin(); symbol != symbols.rend(); ++symbol) {
    const auto& [start, frequency, bits] = *symbol;
    if (bits == 28 || bits == 12) {
      encoder.put(start, frequency, rans_reciprocal(frequency), bits);
    } else {
      encoder.put_uniform(start, bits);
    }
  }
  std::vector<std::byte> stream;
  encoder.finish(stream);
  RansDecoder decoder(stream);
  for (const auto& [start, frequency, bits] : symbols) {
    const std::uint32_t slot = decoder.slot(bits);
    RC_ASSERT(slot >= start);
    RC_ASSERT(slot - start < frequency);
    decoder.consume(start, frequency, bits);
  }
  RC_ASSERT(decoder.finished());
}

}  // namespace
}  // namespace weightcast
