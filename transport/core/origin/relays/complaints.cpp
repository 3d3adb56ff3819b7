#include "transport/core/origin/relays/complaints.h"

#include <algorithm>

namespace weightcast {

Complaints::Weight Complaints::handle_complaint(PeerId child, PeerId parent, PeerFault fault) {
  Author& author = authors_[child];
  const auto known = std::ranges::find(author.complaints, parent, &Complaint::parent);
  if (known != author.complaints.end() && (known->age == 0 || known->discredited)) return Weight::kRepeated;
  if (author.voice == 0) return Weight::kNoVoice;
  --author.voice;
  ++made_;
  if (known != author.complaints.end()) {
    *known = {parent, fault};
  } else {
    author.complaints.push_back({parent, fault});
  }
  return Weight::kCounts;
}

void Complaints::handle_lost(PeerId parent) {
  for (auto& [child, author] : authors_) {
    const auto gone = std::erase_if(author.complaints, [&](const Complaint& complaint) {
      return complaint.parent == parent && complaint.fault == PeerFault::kClosed && complaint.age == 0;
    });
    author.voice = std::min(kVoiceMax, author.voice + static_cast<std::uint32_t>(gone));
  }
}

void Complaints::discredit(PeerId child) {
  for (Complaint& complaint : authors_[child].complaints) complaint.discredited = true;
  ++made_;
}

void Complaints::handle_publication_end(const std::set<PeerId>& took_part) {
  std::set<PeerId> clean = took_part;
  for (const auto& [child, author] : authors_) {
    for (const Complaint& complaint : author.complaints) {
      if (complaint.age > 0) continue;
      clean.erase(child);
      clean.erase(complaint.parent);
    }
  }
  for (auto& [child, author] : authors_) {
    for (Complaint& complaint : author.complaints) {
      if (complaint.fault == PeerFault::kCorrupt) continue;
      complaint.parent_cleared = complaint.parent_cleared || clean.contains(complaint.parent);
      complaint.child_cleared = complaint.child_cleared || clean.contains(child);
    }
  }
  for (auto author = authors_.begin(); author != authors_.end();) {
    std::erase_if(author->second.complaints, [](Complaint& complaint) { return ++complaint.age >= kRemembered; });
    if (author->second.voice < kVoiceMax && ++author->second.since_regained >= kRemembered) {
      ++author->second.voice;
      author->second.since_regained = 0;
    }
    const bool nothing_to_know = author->second.complaints.empty() && author->second.voice == kVoiceMax;
    author = nothing_to_know ? authors_.erase(author) : std::next(author);
  }
}

Complaints::Author Complaints::record(PeerId child) const {
  const auto author = authors_.find(child);
  return author == authors_.end() ? Author{} : author->second;
}

void Complaints::restore(PeerId child, Author author) {
  author.voice = std::min(author.voice, kVoiceMax);
  author.since_regained = std::min(author.since_regained, kRemembered);
  std::erase_if(author.complaints, [](const Complaint& complaint) { return complaint.age >= kRemembered; });
  if (author.complaints.size() > kVoiceMax + 1) author.complaints.resize(kVoiceMax + 1);
  if (author.complaints.empty() && author.voice == kVoiceMax) return;
  authors_[child] = std::move(author);
}

std::vector<ApartPair> Complaints::apart() const {
  std::vector<ApartPair> pairs;
  for (const auto& [child, author] : authors_) {
    for (const Complaint& complaint : author.complaints) pairs.push_back({complaint.parent, child});
  }
  return pairs;
}

std::vector<PeerId> Complaints::witnesses(PeerId parent) const {
  std::vector<PeerId> children;
  for (const auto& [child, author] : authors_) {
    for (const Complaint& complaint : author.complaints) {
      if (complaint.parent == parent && !complaint.discredited) children.push_back(child);
    }
  }
  return children;
}

std::size_t Complaints::count_of(PeerId parent) const {
  std::size_t count = 0;
  for (const auto& [child, author] : authors_) {
    count += std::size_t(std::ranges::count_if(author.complaints, [&](const Complaint& complaint) {
      return complaint.parent == parent && !complaint.discredited && !complaint.parent_cleared;
    }));
  }
  return count;
}

std::size_t Complaints::count_by(PeerId child) const {
  const auto author = authors_.find(child);
  if (author == authors_.end()) return 0;
  return std::size_t(std::ranges::count(author->second.complaints, false, &Complaint::child_cleared));
}

bool Complaints::in_dispute(PeerId member) const { return count_by(member) > 0 || count_of(member) > 0; }

bool Complaints::closed_on_a_child(PeerId parent) const {
  return std::ranges::any_of(authors_, [&](const auto& entry) {
    return std::ranges::any_of(entry.second.complaints, [&](const Complaint& complaint) {
      return complaint.parent == parent && complaint.fault == PeerFault::kClosed && complaint.age == 0;
    });
  });
}

bool Complaints::convicted_of_corruption(PeerId parent) const {
  std::uint32_t witnesses = 0;
  for (const auto& [child, author] : authors_) {
    witnesses += std::ranges::any_of(author.complaints, [&](const Complaint& complaint) {
      return complaint.parent == parent && !complaint.discredited && complaint.fault == PeerFault::kCorrupt;
    });
  }
  return witnesses >= kWitnessesNeeded;
}

std::uint32_t Complaints::unshared(PeerId child) const {
  const auto author = authors_.find(child);
  if (author == authors_.end()) return 0;
  return static_cast<std::uint32_t>(std::ranges::count_if(author->second.complaints, [&](const Complaint& complaint) {
    return complaint.age == 0 && !convicted(complaint.parent);
  }));
}

}  // namespace weightcast
