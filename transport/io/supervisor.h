#pragma once

#include <string_view>

namespace weightcast {

/// Tells the service manager that started this process, if it wants to be told (systemd's Type=notify): "READY=1",
/// "STOPPING=1". What cannot be told is lost: a process does its work without.
void tell_supervisor(std::string_view state);

}  // namespace weightcast
