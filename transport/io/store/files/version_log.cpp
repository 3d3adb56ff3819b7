#include "transport/io/store/files/version_log.h"

#include "base/result.h"

namespace weightcast {

void VersionLog::handle_anchor(Version version) {
  anchor_ = version;
  // Ascending: what a link begins with has been looked at.
  for (auto link = links_.begin(); link != links_.end();) {
    const bool stays = link->first > version && holds(link->second.base);
    link = stays ? std::next(link) : links_.erase(link);
  }
}

void VersionLog::handle_logged(PayloadId patch, std::uint64_t bytes) {
  WC_CHECK(goes_on_with(patch));
  links_[patch.version] = {patch.base, bytes};
}

bool VersionLog::needs(PayloadId patch) const {
  if (!patch.is_patch()) return false;
  const auto link = links_.find(patch.version);
  return link != links_.end() && link->second.base == patch.base;
}

bool VersionLog::is_long(std::uint64_t snapshot_bytes) const {
  std::uint64_t bytes = 0;
  for (const auto& [version, link] : links_) bytes += link.bytes;
  return links_.size() >= options_.patches_max ||
         static_cast<double>(bytes) >= options_.bytes_share_max * static_cast<double>(snapshot_bytes);
}

}  // namespace weightcast
