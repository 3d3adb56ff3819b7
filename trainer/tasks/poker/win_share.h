#pragma once

#include <cstdint>
#include <span>

#include "trainer/tasks/poker/cards.h"

namespace weightcast {

/// The share of the pot that `hole` wins on average against a hand that nobody knows, a tie counting half: over
/// `samples` random continuations of `board`. It follows from the cards alone, so that the same place always has the
/// same odds. Its standard error is at most 0.5 / sqrt(samples). `hole` is two cards, `board` up to five, all
/// different.
[[nodiscard]] double win_share(std::span<const Card> hole, std::span<const Card> board, unsigned samples);

}  // namespace weightcast
