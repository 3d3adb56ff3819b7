#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// The kind of a control message before anything of it is parsed: the number of the one field of wire::Message that its
/// body holds, by its tag. Of no meaning to this release if it is not one of wire::Message::KindCase. 0: the body is
/// empty. Costs a few instructions, whatever the message says. Errors: kCorrupt (the body is not one field that fills
/// it, so no node has written it).
[[nodiscard]] Result<std::uint32_t> message_kind_of(std::string_view body);

}  // namespace weightcast
