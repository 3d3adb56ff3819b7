#include "base/settings/log_writer.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace weightcast {
namespace {

/// Until it is written, or cannot be: whoever should read it may be gone.
void write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put >= 0) {
      text.remove_prefix(std::size_t(put));
    } else if (errno == EAGAIN) {  // whoever shares it may have said that writes should not wait
      pollfd writable{fd, POLLOUT, 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

}  // namespace

struct LogWriter::Shared {
  const int fd;
  const std::size_t bytes_max;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> waiting;
  std::size_t bytes = 0;  // of `waiting`, and of the line that is being written
  std::uint64_t untold = 0, dropped = 0;
  std::optional<LogStyle> untold_style;
  bool has_thread = false, ending = false;

  Shared(int descriptor, std::size_t most) : fd(descriptor), bytes_max(most) {}

  void push(std::string line) {
    bytes += line.size();
    waiting.push_back(std::move(line));
  }

  void tell_dropped() {
    const std::string text = fmt::format("{} line{} of this log {} missing here: nobody read it", untold,
                                         untold == 1 ? "" : "s", untold == 1 ? "is" : "are");
    untold = 0;
    push((untold_style ? log_line_of(*untold_style, std::chrono::system_clock::now(), "warning", text)
                       : "weightcast: " + text) +
         '\n');
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      if (waiting.empty() && untold > 0) tell_dropped();
      if (waiting.empty()) {
        if (ending) return;
        changed.wait(lock);
        continue;
      }
      if (ending) return;
      const std::string line = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      write_whole(fd, line);
      lock.lock();
      bytes -= line.size();
      changed.notify_all();
    }
  }
};

LogWriter::LogWriter(int fd, std::size_t bytes_max) : shared_(std::make_shared<Shared>(fd, bytes_max)) {}

LogWriter::~LogWriter() {
  const std::lock_guard lock(shared_->mutex);
  shared_->ending = true;
  shared_->changed.notify_all();
}

void LogWriter::write(std::string line, const LogStyle* style) {
  std::unique_lock lock(shared_->mutex);
  if (!shared_->has_thread) {
    // Signals are for the other threads.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([shared = shared_] { shared->run(); }).detach();
      shared_->has_thread = true;
    } catch (const std::system_error&) {  // the host has none left; the next line tries again
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!shared_->has_thread) return write_whole(shared_->fd, line);
  }
  // Once lines are missing, until half of what waits is read: else a line about missing ones would follow each line.
  const std::size_t room = shared_->untold > 0 ? shared_->bytes_max / 2 : shared_->bytes_max;
  if (shared_->bytes + line.size() > room) {
    ++shared_->untold;
    ++shared_->dropped;
    shared_->untold_style = style != nullptr ? std::optional(*style) : std::nullopt;
    shared_->changed.notify_all();  // nothing else may be waiting
    return;
  }
  if (shared_->untold > 0) shared_->tell_dropped();
  shared_->push(std::move(line));
  shared_->changed.notify_all();
}

bool LogWriter::flush(std::chrono::milliseconds patience) {
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_for(lock, patience, [this] { return shared_->bytes == 0 && shared_->untold == 0; });
}

std::uint64_t LogWriter::dropped() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->dropped;
}

}  // namespace weightcast
