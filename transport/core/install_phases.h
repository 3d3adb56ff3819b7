#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/time.h"
#include "proto/wire.pb.h"

namespace weightcast {

/// Where the time went between an announcement and the installation, by the worker's own clock and word. The first six
/// follow one another.
struct InstallPhases {
  Duration waiting{};    ///< since the version was announced first, until the payload that was installed was begun
  Duration asking{};     ///< begun, and no chunk had come
  Duration receiving{};  ///< from the first chunk until the last one was verified
  Duration storing{};    ///< from there until all were on the disk
  Duration applying{};   ///< from there: checking the whole, and what was left of decoding
  Duration switching{};  ///< making it the version in use

  Duration given_up{};  ///< within waiting: on payloads of the version that came to nothing
  // Within asking and receiving:
  Duration disk_behind{};          ///< nothing was read from connections, because the disk had too much to write
  Duration interrupted{};          ///< without a chunk of a stripe whose parent was left, of the stripe that lost most
  std::uint32_t parents_left = 0;  ///< nodes that were left as parents

  std::uint64_t bytes = 0;      ///< of the payload, that came
  PeerId fed_by{};              ///< who sent most of them; of no bytes nobody did
  std::uint64_t fed_bytes = 0;  ///< by that one

  [[nodiscard]] Duration total() const { return waiting + asking + receiving + storing + applying + switching; }
  bool operator==(const InstallPhases&) const = default;
};

[[nodiscard]] wire::InstallPhases install_phases_to_wire(const InstallPhases& phases);
/// Nothing if a time in it is no number, negative, or above kPhaseMax_s, or the bytes are more than a payload has.
[[nodiscard]] std::optional<InstallPhases> install_phases_from_wire(const wire::InstallPhases& message);

/// "waited 0.12 s, first chunk after 0.01 s, received in 3.60 s, stored in 0.02 s, applied in 0.31 s, switched in 0.00
/// s".
[[nodiscard]] std::string to_string(const InstallPhases& phases);

}  // namespace weightcast
