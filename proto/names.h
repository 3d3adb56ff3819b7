#pragma once

#include <string_view>

#include "base/result.h"

namespace weightcast {

/// What a node may be called, where its name is given (`--name`) and where it arrives (`Join`): 1 to kNameBytesMax
/// bytes; letters, digits and - _ . : / @ of ASCII; a letter or a digit first. So host names, names of pods,
/// "rack/host" and "user@host" fit, a name looks the same in logs, JSON and shells, and is never taken for an option.
/// Errors: kInvalidArgument; the detail quotes the name so that it can be printed.
[[nodiscard]] Status check_node_name(std::string_view name);

/// Whether `host` can stand in an address: a name, IPv4 or IPv6 (letters, digits and - _ . : % of ASCII, at most
/// kNameBytesMax bytes), or nothing, where the receiver knows it. Errors: kInvalidArgument, as above.
[[nodiscard]] Status check_host(std::string_view host);

}  // namespace weightcast
