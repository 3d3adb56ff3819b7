#include "base/admission.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

namespace weightcast {
namespace {

// Beyond these a node has other troubles than descriptors.
constexpr std::uint64_t kConnectionsMin = 16;
constexpr std::uint64_t kConnectionsMax = 1u << 20;
constexpr std::uint64_t kUnidentifiedMax = 1024;

}  // namespace

AdmissionLimits AdmissionLimits::for_connections(std::uint64_t connections_max) {
  AdmissionLimits limits;
  limits.connections_max = connections_max;
  limits.connections_per_host_max = connections_max - connections_max / 4;
  limits.unidentified_max = std::clamp<std::uint64_t>(connections_max / 4, 1, kUnidentifiedMax);
  limits.unidentified_per_host_max = std::max<std::uint64_t>(limits.unidentified_max / 2, 1);
  return limits;
}

AdmissionLimits AdmissionLimits::for_descriptors(std::uint64_t descriptors_max) {
  return for_connections(std::clamp(descriptors_max / 2, kConnectionsMin, kConnectionsMax));
}

AdmissionLimits AdmissionLimits::of_this_process() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return for_descriptors(limit.rlim_cur);
}

Status Admission::admit(ConnId conn, const std::string& host) {
  const auto refuse = [&](const std::string& whose, std::size_t count) {
    return fail(
        Errc::kBusy, Op::kListen,
        fmt::format("from {}: {} connections {} are open, which is the limit; if the fleet is that large, raise the "
                    "limit of open files (RLIMIT_NOFILE)",
                    host, count, whose));
  };
  if (count() >= limits_.connections_max) return refuse("of others", count());
  const auto known = hosts_.find(host);
  if (known != hosts_.end() && known->second.connections >= limits_.connections_per_host_max) {
    return refuse("of this host", known->second.connections);
  }
  const auto at = hosts_.try_emplace(host).first;
  ++at->second.connections;
  ++at->second.unidentified;
  hosts_of_.emplace(conn, at);
  unidentified_.emplace(conn, at);
  newest_host_ = at;
  return {};
}

std::optional<ConnId> Admission::crowded_out() const {
  if (unidentified_.size() > limits_.unidentified_max) return unidentified_.begin()->first;
  if (!newest_host_ || (*newest_host_)->second.unidentified <= limits_.unidentified_per_host_max) return std::nullopt;
  const auto oldest =
      std::ranges::find_if(unidentified_, [&](const auto& entry) { return entry.second == *newest_host_; });
  return oldest->first;
}

void Admission::identify(ConnId conn) {
  const auto found = unidentified_.find(conn);
  if (found == unidentified_.end()) return;
  --found->second->second.unidentified;
  unidentified_.erase(found);
}

void Admission::erase(ConnId conn) {
  identify(conn);
  const auto found = hosts_of_.find(conn);
  if (found == hosts_of_.end()) return;
  const auto host = found->second;
  hosts_of_.erase(found);
  if (--host->second.connections > 0) return;
  if (newest_host_ == host) newest_host_.reset();
  hosts_.erase(host);
}

}  // namespace weightcast
