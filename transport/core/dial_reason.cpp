#include "transport/core/dial_reason.h"

namespace weightcast {

std::string_view dial_reason(std::string_view detail, const std::string& address) {
  if (const std::string target = "to " + address + ": "; detail.starts_with(target)) {
    detail.remove_prefix(target.size());
  }
  return detail.substr(0, detail.find(';'));
}

}  // namespace weightcast
