#pragma once

#include <map>
#include <string>
#include <string_view>

#include "proto/local_messages.h"
#include "transport/core/origin/history/publication_history.h"

namespace weightcast {

/// Workers that one answer tells, so that it fits a message; the rest of a larger fleet is left out.
inline constexpr std::size_t kHistoryWorkersMax = 4096;

/// What a process before this one has told of a publication when it had ended.
struct EarlierPublication {
  local::PublicationEntry entry;
  std::string reply;  ///< a HistoryReply with the workers, as bytes
};
using EarlierPublications = std::map<Version, EarlierPublication>;

/// What a local client is told of the publications that an origin remembers: all of them without workers
/// (`version` kNoVersion), or one. What this process knows of a version comes before what is `earlier`; in all they are
/// PublicationHistory::kVersionsMax at most, the newest. Pure. Errors: kNotFound, with what is remembered.
[[nodiscard]] Result<local::HistoryReply> history_reply(const PublicationHistory& history, Version version,
                                                        std::string_view origin_name, Instant now,
                                                        const EarlierPublications& earlier = {});

}  // namespace weightcast
