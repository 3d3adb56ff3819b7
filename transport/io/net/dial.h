#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/settings/endpoint.h"
#include "transport/io/net/frame_connection.h"

namespace weightcast {

/// Starts to connect. `on_done` runs once, later, with the connection or the error (kTimedOut, kIo). Destroying this
/// object cancels, even from inside `on_done`. Each dial looks the name up again, and the lookup counts towards the
/// connect timeout. If a host has several addresses, they are tried one after the other.
class Dial {
 public:
  using Done = std::function<void(Result<std::unique_ptr<FrameConnection>>)>;
  Dial(const ConnectionContext& context, const Endpoint& to, Done on_done);
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

 private:
  std::shared_ptr<class Connector> connector_;  // shared with itself while it calls back
};

/// Connects to a Unix socket at `path`, as Dial does.
class DialLocal {
 public:
  DialLocal(const ConnectionContext& context, const std::string& path, Dial::Done on_done);
  ~DialLocal();
  DialLocal(const DialLocal&) = delete;
  DialLocal& operator=(const DialLocal&) = delete;

 private:
  std::shared_ptr<class Connector> connector_;
};

}  // namespace weightcast
