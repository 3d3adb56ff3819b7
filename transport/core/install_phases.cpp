#include "transport/core/install_phases.h"

#include <fmt/format.h>

#include <array>

#include "proto/limits.h"

namespace weightcast {

wire::InstallPhases install_phases_to_wire(const InstallPhases& phases) {
  wire::InstallPhases message;
  message.set_waiting_s(to_seconds(phases.waiting));
  message.set_asking_s(to_seconds(phases.asking));
  message.set_receiving_s(to_seconds(phases.receiving));
  message.set_storing_s(to_seconds(phases.storing));
  message.set_applying_s(to_seconds(phases.applying));
  message.set_switching_s(to_seconds(phases.switching));
  message.set_disk_behind_s(to_seconds(phases.disk_behind));
  message.set_interrupted_s(to_seconds(phases.interrupted));
  message.set_given_up_s(to_seconds(phases.given_up));
  message.set_parents_left(phases.parents_left);
  message.set_bytes(phases.bytes);
  message.set_fed_by_id(phases.fed_by.value);
  message.set_fed_bytes(phases.fed_bytes);
  return message;
}

std::optional<InstallPhases> install_phases_from_wire(const wire::InstallPhases& message) {
  const std::array<double, 9> seconds = {message.waiting_s(),     message.asking_s(),      message.receiving_s(),
                                         message.storing_s(),     message.applying_s(),    message.switching_s(),
                                         message.disk_behind_s(), message.interrupted_s(), message.given_up_s()};
  for (const double s : seconds) {
    if (!(s >= 0 && s <= kPhaseMax_s)) return std::nullopt;  // also what is no number
  }
  if (message.bytes() > kPayloadBytesMax || message.fed_bytes() > message.bytes()) return std::nullopt;
  InstallPhases phases;
  phases.waiting = from_seconds(seconds[0]);
  phases.asking = from_seconds(seconds[1]);
  phases.receiving = from_seconds(seconds[2]);
  phases.storing = from_seconds(seconds[3]);
  phases.applying = from_seconds(seconds[4]);
  phases.switching = from_seconds(seconds[5]);
  phases.disk_behind = from_seconds(seconds[6]);
  phases.interrupted = from_seconds(seconds[7]);
  phases.given_up = from_seconds(seconds[8]);
  phases.parents_left = message.parents_left();
  phases.bytes = message.bytes();
  phases.fed_by = PeerId{message.fed_by_id()};
  phases.fed_bytes = message.fed_bytes();
  return phases;
}

std::string to_string(const InstallPhases& phases) {
  return fmt::format(
      "waited {:.2f} s, first chunk after {:.2f} s, received in {:.2f} s, stored in {:.2f} s, applied in {:.2f} s, "
      "switched in {:.2f} s",
      to_seconds(phases.waiting), to_seconds(phases.asking), to_seconds(phases.receiving), to_seconds(phases.storing),
      to_seconds(phases.applying), to_seconds(phases.switching));
}

}  // namespace weightcast
