#include "patch/codec/entropy/step_model.h"

#include <algorithm>
#include <numeric>

#include "patch/codec/entropy/fixed_math.h"

namespace weightcast {
namespace {

constexpr std::uint32_t kTotal = 1u << kStepTableBits;

using Counts = std::array<std::uint32_t, kStepTokens>;

unsigned tokens_in(const Counts& counts) {
  unsigned tokens = kStepTokens;
  while (tokens > 0 && counts[tokens - 1] == 0) --tokens;
  return tokens;
}

// Bits of the counted tokens under their own distribution, and of the table that says so.
double cost_bits(const Counts& counts) {
  double total = 0, bits = 0;
  unsigned used = 0;
  for (const std::uint32_t count : counts) total += count;
  if (total == 0) return 0;
  for (const std::uint32_t count : counts) {
    if (count == 0) continue;
    bits -= count * portable_log2(count / total);
    ++used;
  }
  return bits + 8.0 * (1 + tokens_in(counts)) + 4.0 * used;
}

// Frequencies that add up to 4096, at least 1 for each token that occurs. The remainder goes to the most frequent
// token, the first of them on a tie, where it changes the cost least.
StepTable normalise(const Counts& counts) {
  StepTable table;
  std::uint64_t total = 0;
  for (const std::uint32_t count : counts) total += count;
  std::uint32_t given = 0;
  for (unsigned token = 0; token < kStepTokens; ++token) {
    if (counts[token] == 0) continue;
    const auto share = std::uint32_t((std::uint64_t{counts[token]} * kTotal + total / 2) / total);
    table.frequency[token] = std::uint16_t(std::max(share, 1u));
    given += table.frequency[token];
  }
  while (given != kTotal) {
    const auto most = std::max_element(table.frequency.begin(), table.frequency.end());
    if (given < kTotal) {
      *most = std::uint16_t(*most + (kTotal - given));
      given = kTotal;
    } else {
      const std::uint32_t taken = std::min<std::uint32_t>(given - kTotal, *most - 1u);
      *most = std::uint16_t(*most - std::min<std::uint32_t>(taken, std::max(*most / 2u, 1u)));
      given = std::accumulate(table.frequency.begin(), table.frequency.end(), 0u);
    }
  }
  return table;
}

void fill_starts(StepTable& table) {
  std::uint32_t start = 0;
  for (unsigned token = 0; token < kStepTokens; ++token) {
    table.start[token] = std::uint16_t(start);
    start += table.frequency[token];
  }
  table.start.back() = std::uint16_t(start);
}

/// Neighbouring classes that share a table.
struct Run {
  unsigned first;
  Counts counts;
  double bits;
};

Run join(const Run& a, const Run& b) {
  Run joined = a;
  for (unsigned token = 0; token < kStepTokens; ++token) joined.counts[token] += b.counts[token];
  joined.bits = cost_bits(joined.counts);
  return joined;
}

double gain_of_joining(const Run& a, const Run& b) { return a.bits + b.bits - join(a, b).bits; }

}  // namespace

StepModel fit_steps(const StepCounts& counts) {
  std::vector<Run> runs;
  for (unsigned c = 0; c < kHazardClasses; ++c) {
    if (tokens_in(counts[c]) > 0) runs.push_back({c, counts[c], cost_bits(counts[c])});
  }
  // Greedy: the pair of neighbours that gains most by a common table, until none gains.
  std::vector<double> gains;  // of each run with the next
  for (std::size_t i = 0; i + 1 < runs.size(); ++i) gains.push_back(gain_of_joining(runs[i], runs[i + 1]));
  while (!gains.empty()) {
    const auto best = std::max_element(gains.begin(), gains.end());
    if (*best <= 0) break;
    const std::size_t i = std::size_t(best - gains.begin());
    runs[i] = join(runs[i], runs[i + 1]);
    runs.erase(runs.begin() + std::ptrdiff_t(i) + 1);
    gains.erase(best);
    if (i < gains.size()) gains[i] = gain_of_joining(runs[i], runs[i + 1]);
    if (i > 0) gains[i - 1] = gain_of_joining(runs[i - 1], runs[i]);
  }
  StepModel model;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    model.tables.push_back(normalise(runs[i].counts));
    fill_starts(model.tables.back());
    const unsigned first = i == 0 ? 0 : runs[i].first;
    for (unsigned c = first; c < kHazardClasses; ++c) model.table_of_class[c] = std::uint8_t(i);
  }
  return model;
}

StepCoder::StepCoder(const StepModel& model)
    : table_of_class_(model.table_of_class), symbols_(model.tables.size() * kStepTokens) {
  for (std::size_t i = 0; i < symbols_.size(); ++i) {
    const StepTable& table = model.tables[i / kStepTokens];
    const std::size_t token = i % kStepTokens;
    if (table.frequency[token] == 0) continue;
    symbols_[i] = {rans_reciprocal(table.frequency[token]), table.start[token], table.frequency[token]};
  }
}

void write_steps(const StepModel& model, ByteWriter& out) {
  std::uint16_t begins = 0;
  for (unsigned c = 1; c < kHazardClasses; ++c) {
    if (model.table_of_class[c] != model.table_of_class[c - 1]) begins = std::uint16_t(begins | (1u << c));
  }
  out.fixed(begins);
  for (const StepTable& table : model.tables) {
    unsigned tokens = kStepTokens;
    while (table.frequency[tokens - 1] == 0) --tokens;
    out.varint(tokens);
    for (unsigned token = 0; token < tokens; ++token) out.varint(table.frequency[token]);
  }
}

bool StepDecoder::read(ByteReader& in) {
  const auto begins = in.fixed<std::uint16_t>();
  if ((begins & 1) != 0) return false;
  unsigned tables = 1;
  model_.table_of_class[0] = 0;
  for (unsigned c = 1; c < kHazardClasses; ++c) {
    if ((begins >> c & 1) != 0) ++tables;
    model_.table_of_class[c] = std::uint8_t(tables - 1);
  }
  model_.tables.assign(tables, {});
  first_token_.resize(std::size_t{tables} << kFirstTokenBits);
  for (unsigned i = 0; i < tables; ++i) {
    StepTable& table = model_.tables[i];
    const std::uint64_t tokens = in.varint();
    if (tokens == 0 || tokens > kStepTokens) return false;
    std::uint32_t total = 0;
    for (unsigned token = 0; token < tokens; ++token) {
      const std::uint64_t frequency = in.varint();
      if (frequency > kTotal - total) return false;
      table.frequency[token] = std::uint16_t(frequency);
      total += std::uint32_t(frequency);
    }
    if (total != kTotal || table.frequency[tokens - 1] == 0) return false;
    fill_starts(table);
    unsigned token = 0;
    for (unsigned first = 0; first < 1u << kFirstTokenBits; ++first) {
      while (table.start[token + 1] <= first << kSlotBits) ++token;
      first_token_[(std::size_t{i} << kFirstTokenBits) + first] = std::uint16_t(token);
    }
  }
  return in.ok();
}

}  // namespace weightcast
