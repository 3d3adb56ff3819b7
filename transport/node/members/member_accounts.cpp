#include "transport/node/members/member_accounts.h"

#include <algorithm>

namespace weightcast {

bool MemberAccount::charge(Instant now, std::size_t message_bytes, Duration processor_time) {
  bytes.charge(now, static_cast<double>(message_bytes) + kMessageOverheadBytes, kOwed_s_max * kMessageBytesPerSecond);
  processor_s.charge(now, to_seconds(processor_time), kOwed_s_max * kProcessorShare);
  const Duration owed = std::max(bytes.owed(now), processor_s.owed(now));
  if (owed == Duration::zero()) return false;
  held_until = now + owed;
  return true;
}

MemberAccount* MemberAccounts::find(ConnId conn) {
  const auto found = of_conns_.find(conn);
  return found == of_conns_.end() ? nullptr : found->second;
}

MemberAccount& MemberAccounts::open(ConnId conn, const std::string& name) {
  if (!accounts_.contains(name) && accounts_.size() >= kAccountsMax) {
    std::erase_if(accounts_, [](const auto& account) { return account.second.conns.empty(); });
  }
  MemberAccount& account = accounts_[name];
  account.name = name;
  account.conns.insert(conn);
  of_conns_[conn] = &account;
  return account;
}

void MemberAccounts::close(ConnId conn) {
  const auto found = of_conns_.find(conn);
  if (found == of_conns_.end()) return;
  found->second->conns.erase(conn);
  of_conns_.erase(found);
}

}  // namespace weightcast
