#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "base/ids.h"

namespace weightcast {

/// A version of one of the runs that a daemon has followed. A greater run is newer, whatever the version.
struct VersionName {
  std::uint32_t run = 0;
  Version version{};

  auto operator<=>(const VersionName&) const = default;
};

/// Which version to prepare next. Pure: no files, no clock, no threads.
/// Invariant: a version is prepared at most once, unless trying again may help, and never after a newer one.
class VersionPolicy {
 public:
  /// The daemon has it. An older one than is known changes nothing: what the engine has was whole, and newer.
  void handle_installed(VersionName name);
  /// What next() gave can be used, or never will be.
  void handle_settled(VersionName name);

  /// The newest one, unless it is settled.
  [[nodiscard]] std::optional<VersionName> next() const;

 private:
  VersionName newest_;
  VersionName settled_;
};

}  // namespace weightcast
