#pragma once

#include <string_view>

namespace weightcast {

/// The page for operators, whole: a document of HTML with its style and script, as the build put it together.
[[nodiscard]] std::string_view page_html();
/// Its Content-Security-Policy, which the document says, too.
[[nodiscard]] std::string_view page_policy();

}  // namespace weightcast
