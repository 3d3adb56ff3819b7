#pragma once

#include "base/result.h"
#include "base/time.h"

namespace weightcast::bench {

/// SIGINT and SIGTERM as an error that unwinds the bench, so that every process, namespace and file is cleaned up by
/// its owner. To be called before there are threads.
void hold_interrupts();

/// Errors: kClosed when the bench was asked to stop.
[[nodiscard]] Status check_interrupt();

/// Sleeps, in slices short enough for a person. Errors: as check_interrupt().
[[nodiscard]] Status sleep_for(Duration duration);

}  // namespace weightcast::bench
