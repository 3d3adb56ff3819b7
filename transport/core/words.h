#pragma once

#include "base/peer_identity.h"
#include "base/settings/words.h"
#include "transport/core/origin/origin_config.h"

namespace weightcast {

constexpr Words<2> words_of(Role) { return {"origin", "worker"}; }  // that a node can be given
template <>
inline constexpr bool kHasUnnamedValues<Role> = true;
constexpr Words<3> words_of(Packing) { return {"never", "auto", "always"}; }

}  // namespace weightcast
