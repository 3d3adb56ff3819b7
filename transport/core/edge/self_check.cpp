#include "transport/core/edge/self_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "proto/limits.h"

namespace weightcast {

void SelfCheck::handle_suspected(Instant now, PayloadId payload, ChunkIndex chunk) {
  const auto holding = holdings_.find(payload);
  if (holding == holdings_.end() || !holding->second.digest(chunk)) return;
  std::erase_if(checks_, [&](const auto& check) { return check.second && now - *check.second >= kRecheckAfter; });
  const auto under_way = std::ranges::count_if(checks_, [](const auto& check) { return !check.second; });
  if (static_cast<std::size_t>(under_way) >= kChecksMax || checks_.size() >= kChunkChecksMax) return;
  if (checks_.try_emplace({payload, chunk}).second) actions_.push(action::CheckChunk{payload, chunk});
}

std::optional<Error> SelfCheck::handle_checked(Instant now, PayloadId payload, ChunkIndex chunk,
                                               const Result<ContentDigest>& digest) {
  const auto check = checks_.find({payload, chunk});
  if (check == checks_.end()) return std::nullopt;
  const auto holding = holdings_.find(payload);
  const std::optional<ContentDigest> due = holding == holdings_.end() ? std::nullopt : holding->second.digest(chunk);
  if (!due) {
    checks_.erase(check);
    return std::nullopt;
  }
  if (digest.has_value() && *digest == *due) {
    check->second = now;
    actions_.push(action::info(
        fmt::format("{}, chunk {}: a child says that it is damaged; here it is not", to_string(payload), chunk.value)));
    return std::nullopt;
  }
  checks_.erase(check);
  return fail(Errc::kCorrupt, Op::kVerify,
              fmt::format("{}, chunk {}: {}; this node's disk may be failing", to_string(payload), chunk.value,
                          digest.has_value() ? "what is on disk does not match its digest" : digest.error().message()));
}

}  // namespace weightcast
