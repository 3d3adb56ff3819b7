#pragma once

#include <string>

namespace weightcast {

/// One turn of a conversation: what a task asks with, and what a chat template makes tokens of.
struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;

  bool operator==(const ChatMessage&) const = default;
};

}  // namespace weightcast
