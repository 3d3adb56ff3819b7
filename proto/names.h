#pragma once

#include <string_view>

#include "base/result.h"

namespace weightcast {

/// Checks a node's name, given by `--name` or received in `Join`: 1 to kNameBytesMax bytes of ASCII letters, digits and
/// - _ . : / @, beginning with a letter or a digit. Host names, names of pods, "rack/host" and "user@host" fit. A name
/// looks the same in logs, JSON and shells, and no program takes it for an option.
/// Errors: kInvalidArgument; the detail quotes the name so that it can be printed.
[[nodiscard]] Status check_node_name(std::string_view name);

/// Checks the host of an address: a name, IPv4 or IPv6 (ASCII letters, digits and - _ . : %, at most kNameBytesMax
/// bytes). It may be empty, where the receiver knows the host. Errors: kInvalidArgument, as above.
[[nodiscard]] Status check_host(std::string_view host);

/// Whether `text` is of the form `pattern`, in which * stands for any characters, or none. Takes time in proportion to
/// the product of both lengths at most.
[[nodiscard]] bool matches_pattern(std::string_view pattern, std::string_view text);

}  // namespace weightcast
