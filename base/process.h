#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace weightcast {

/// What every program does before all else, for it and for what it starts:
///
/// | so that | it |
/// |---|---|
/// | no log line lands in a file that happens to get number 0, 1 or 2 | opens /dev/null on those that are closed |
/// | a limit of the size of files is an error that is told, as a full disk is | ignores SIGXFSZ |
///
/// A command that is soon done leaves the other signals to their defaults: its shell says which one has ended it.
void set_up_process();

/// Of what set_up_process() ignores, what a program that takes this one's place should not inherit.
void restore_signals();

/// What a program that runs for long does with SIGHUP. A SIGHUP that was ignored at its start (nohup) stays ignored.
enum class AtHangup { kReloads, kStops };

/// For a program that runs for long, before it has other threads. Afterwards no signal ends it silently:
///
/// | signal | what becomes of it |
/// |---|---|
/// | SIGTERM, SIGINT | the program's own: they stop it |
/// | SIGHUP | read the configuration again, or told, and as SIGTERM |
/// | SIGXCPU | a limit of processor time: told, and as SIGTERM once, before the kernel ends it |
/// | SIGPIPE | ignored: whoever reads may go |
/// | SIGALRM | ignored: only a daemon's last seconds have an alarm |
/// | SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT, those of real time | told, and ignored |
/// | SIGQUIT and those of faults (SIGSEGV, SIGBUS, SIGABRT, ...) | the default, which leaves a core to look at; a
/// service manager and a shell tell which |
///
/// `tell` is called on a thread of its own.
void watch_signals(AtHangup at_hangup, std::function<void(const std::string& line)> tell);

/// Writes what there is room for without waiting: for words before an end. May be called in a signal's handler.
void write_at_once(int fd, std::string_view text);

}  // namespace weightcast
