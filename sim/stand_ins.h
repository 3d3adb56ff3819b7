#pragma once

#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/digest/content_digest.h"
#include "base/peer_identity.h"
#include "proto/wire.pb.h"
#include "sim/network.h"
#include "transport/core/action.h"

/// Stand-ins for addresses and bytes, since a simulation of cores has neither.
namespace weightcast::sim {

inline constexpr std::uint16_t kPort = 1;

inline std::string host_of(NodeIndex node) { return "n" + std::to_string(node); }

/// The number behind `letter`, with which `text` begins; kNoIndex for other text.
inline NodeIndex node_behind(char letter, std::string_view text) {
  NodeIndex node = kNoIndex;
  if (text.starts_with(letter)) std::from_chars(text.data() + 1, text.data() + text.size(), node);
  return node;
}
/// The node of a host_of(); kNoIndex for other text.
inline NodeIndex node_at(std::string_view host) { return node_behind('n', host); }

/// The name by which others call a worker of a simulation, and the worker of such a name; kNoIndex for other text.
inline std::string member_name(NodeIndex node) { return "w" + std::to_string(node); }
inline NodeIndex node_named(std::string_view name) { return node_behind('w', name); }

inline std::string name_of(NodeIndex node) { return node == 0 ? "origin" : "worker " + std::to_string(node); }

/// Who a node of that name proves to be on each of its connections. Its key lasts over its restarts.
inline PeerIdentity identity_of(NodeIndex node, std::string name) {
  PeerIdentity identity;
  identity.role = node == 0 ? Role::kOrigin : Role::kWorker;
  identity.name = std::move(name);
  for (std::size_t i = 0; i < sizeof node; ++i) identity.key.bytes[i] = std::byte(node >> (8 * i));
  return identity;
}

/// A control message of a core.
struct MessageCargo final : Cargo {
  explicit MessageCargo(wire::Message said) : message(std::move(said)) {}
  [[nodiscard]] std::string text() const override {
    const bool is_padding = !message.rate_probe().padding().empty() || !message.rate_probed().padding().empty();
    return is_padding ? "padding" : message.ShortDebugString().substr(0, 160);
  }

  const wire::Message message;
};

inline ContentDigest wrong(ContentDigest digest) {
  digest.bytes[0] ^= std::byte{1};
  return digest;
}

/// A core passes a chunk's buffer on and never looks inside. So the buffer's address alone says whether the bytes are
/// intact.
inline std::shared_ptr<Buffer> stand_in(bool damaged) {
  static char intact_mark, damaged_mark;
  return {std::shared_ptr<void>(), reinterpret_cast<Buffer*>(damaged ? &damaged_mark : &intact_mark)};
}
inline bool is_damaged(const std::shared_ptr<Buffer>& bytes) { return bytes.get() == stand_in(true).get(); }

}  // namespace weightcast::sim
