#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "transport/io/net/dial.h"
#include "transport/io/net/listener.h"

namespace weightcast {

using Dialed = std::optional<Result<std::unique_ptr<FrameConnection>>>;

inline Dial::Done store_in(Dialed& result) {
  return [&result](Result<std::unique_ptr<FrameConnection>> c) { result.emplace(std::move(c)); };
}

inline Listener::OnConnection ignore() {
  return [](std::unique_ptr<FrameConnection>) {};
}

}  // namespace weightcast
