#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/ids.h"
#include "base/time.h"
#include "transport/core/budget.h"
#include "transport/io/net/pacer.h"
#include "transport/io/net/receive_budget.h"

namespace weightcast {

/// What one member may have of this node, over all its connections, and over those that it makes anew.
struct MemberAccount {
  static constexpr double kMessageBytesPerSecond = 1024.0 * 1024;
  /// All subscriptions of 64 stripes to a payload of four million chunks, each with its bitmap, come at once.
  static constexpr double kMessageBytesBurst = 48 * kMessageBytesPerSecond;
  /// A message costs so much beside its bytes.
  static constexpr double kMessageOverheadBytes = 256;
  /// Of the loop's thread.
  static constexpr double kProcessorShare = 0.1;
  static constexpr double kProcessorBurst_s = 0.5;
  /// Nobody is left unread for longer than this: an origin takes who is silent for 5 s for lost.
  static constexpr double kOwed_s_max = 2;
  /// So often a member may be held back before somebody wants to know.
  static constexpr double kHoldsPerSecond = 0.05;
  static constexpr double kHoldsBurst = 4;

  std::string name;
  std::shared_ptr<Pacer::Share> uplink = std::make_shared<Pacer::Share>();
  std::shared_ptr<ReceiveBudget::Holder> memory = std::make_shared<ReceiveBudget::Holder>();
  Budget bytes{kMessageBytesPerSecond, kMessageBytesBurst};
  Budget processor_s{kProcessorShare, kProcessorBurst_s};
  Budget holds{kHoldsPerSecond, kHoldsBurst};
  Instant held_until{};  ///< it is not read before
  std::set<ConnId> conns;

  /// A message of that size took so long. Returns whether the member is to be held back from now on, until
  /// `held_until`.
  [[nodiscard]] bool charge(Instant now, std::size_t message_bytes, Duration processor_time);
  [[nodiscard]] bool is_held(Instant now) const { return now < held_until; }
};

/// The accounts of all members that have spoken to this node, by name. Pure. Owned by a Driver.
class MemberAccounts {
 public:
  /// Beyond so many, those without a connection are forgotten. Where nodes have keys, the authority has named no more.
  static constexpr std::size_t kAccountsMax = 1 << 16;

  /// The account of a connection; null while nobody knows whose it is. Valid until the next open().
  [[nodiscard]] MemberAccount* find(ConnId conn);
  /// The connection is that member's. Its account lives at least as long.
  MemberAccount& open(ConnId conn, const std::string& name);
  void close(ConnId conn);

 private:
  std::map<std::string, MemberAccount> accounts_;
  std::map<ConnId, MemberAccount*> of_conns_;
};

}  // namespace weightcast
