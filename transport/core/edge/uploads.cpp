#include "transport/core/edge/uploads.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

// Enough in the connection's hands to fill its socket while the next chunk is fetched; at least two chunks.
constexpr std::uint64_t kInFlightBytes = 256 * kKiB;
constexpr std::size_t kInFlightChunksMin = 2;
// What a chunk adds to the tag of a stripe of weight 1.
constexpr std::uint64_t kTagPerChunk = 1 << 20;
// A child takes one version at a time, and turns to the next; more than this it cannot want.
constexpr std::size_t kSubscriptionsMax = 2 * kStripesMax;
// Names whose copies are counted. Where nodes have keys, no more exist than the authority has given names.
constexpr std::size_t kNamesCountedMax = 1 << 16;

}  // namespace

Uploads::Uploads(const Timeouts& timeouts, const Holdings& holdings, ActionQueue& actions)
    : timeouts_(timeouts), holdings_(holdings), actions_(actions) {}

void Uploads::handle_hello(ConnId conn, Child child) {
  ChildState& state = children_[conn];
  state.child = std::move(child);
  if (copies_.contains(state.child.name) || copies_.size() < kNamesCountedMax) {
    state.copies = &copies_[state.child.name];
  }
}

std::size_t Uploads::connections_of(const Child& child) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(children_, [&](const auto& entry) { return are_one_peer(entry.second.child, child); }));
}

std::string Uploads::name_of(ConnId conn) const {
  const auto child = children_.find(conn);
  return child == children_.end() ? std::string() : child->second.child.name;
}

Status Uploads::handle_subscribe(Instant now, ConnId conn, const wire::Subscribe& request) {
  const auto found = children_.find(conn);
  if (found == children_.end()) return fail(Errc::kNotAllowed, Op::kReceive, "subscribe: no hello came before it");
  std::vector<std::uint32_t> weights;
  weights.assign(request.stripe_weights().begin(), request.stripe_weights().end());
  if (weights.empty()) weights.push_back(1);
  if (!are_stripe_weights(weights) || request.stripe() >= weights.size()) {
    return fail(Errc::kCorrupt, Op::kReceive, "subscribe: stripes out of their limits");
  }
  if (request.chunks_held().size() > kChunksMax / 8) {
    return fail(Errc::kTooLarge, Op::kReceive, "subscribe: more chunks held than exist");
  }
  const PayloadId payload = payload_of(request);
  const Key key{payload, request.stripe()};
  ChildState& child = found->second;
  if (child.subscriptions.contains(key)) {
    return fail(Errc::kAlreadyExists, Op::kReceive, "subscribe: again, with no unsubscribe before it");
  }
  if (child.subscriptions.size() >= kSubscriptionsMax) {
    return fail(Errc::kTooLarge, Op::kReceive, fmt::format("subscribe: {} subscriptions already", kSubscriptionsMax));
  }
  if (subscriptions_of(child.child) >= kSubscriptionsPerPeerMax) {
    return fail(Errc::kTooLarge, Op::kReceive,
                fmt::format("subscribe: {} subscriptions already, on all its connections", kSubscriptionsPerPeerMax));
  }
  if (is_bitmap_too_much(payload, child, request.chunks_held().size())) {
    if (!has_place(child, payload)) {
      // Not NotAvailable: the child may be one that this node has not heard of again since it started.
      return fail(Errc::kBusy, Op::kReceive, "subscribe: it has no place in a plan of that payload here; join first");
    }
    refuse(conn, payload, "too many requests wait at this node for payloads that it does not have yet");
    return {};
  }
  Subscription s(conn, request.stripe(), weights);
  s.held_bytes = keep_bitmap(request.chunks_held());
  s.parts_held = request.parts_held();
  s.told_at = now;
  // What a subscription before this one left in the connection's hands fills the same window.
  s.in_flight = static_cast<std::uint32_t>(std::ranges::count(child.in_flight, key, &InFlight::key));
  s.tag = child.tag;
  start(payload, child.subscriptions.emplace(key, std::move(s)).first->second, child);
  return {};
}

std::shared_ptr<const std::string> Uploads::keep_bitmap(const std::string& bitmap) {
  if (bitmap.empty()) return nullptr;
  kept_bitmaps_bytes_ += bitmap.size();
  return {new std::string(bitmap), [this](const std::string* kept) {
            kept_bitmaps_bytes_ -= kept->size();
            delete kept;
          }};
}

bool Uploads::is_bitmap_too_much(PayloadId payload, const ChildState& child, std::size_t bytes) const {
  const auto holding = holdings_.find(payload);
  const bool placed = has_place(child, payload);
  if (holding != holdings_.end() && !holding->second.open() && placed) return false;
  if (bytes == 0) return false;
  if ((holding == holdings_.end() || !placed) && bytes > kUnknownBitmapBytesMax) return true;
  std::size_t kept = 0;
  for (const auto& [conn, other] : children_) {
    if (!are_one_peer(other.child, child.child)) continue;
    for (const auto& [key, s] : other.subscriptions) kept += s.held_bytes ? s.held_bytes->size() : 0;
  }
  return kept + bytes > kKeptBitmapBytesMax || kept_bitmaps_bytes_ + bytes > kKeptBitmapsBytesMax;
}

void Uploads::start(PayloadId payload, Subscription& s, ChildState& child) {
  const auto holding = holdings_.find(payload);
  if (holding == holdings_.end()) {
    // One that may still come: handle_known() or the time-out will tell. A node takes one payload of a version, and
    // versions older than what is here never come.
    if (holdings_.empty() || payload.version > holdings_.rbegin()->first.version) return note_due(s);
    const ConnId conn = s.conn;
    child.subscriptions.erase({payload, s.stripe});
    return refuse(conn, payload, "this node holds other payloads only");
  }
  if (!has_place(child, payload)) return note_due(s);
  s.ready = true;
  grow(holding->second.manifest(), s);
  pump(child);
}

std::size_t Uploads::subscriptions_of(const Child& child) const {
  std::size_t count = 0;
  for (const auto& [conn, other] : children_) {
    if (are_one_peer(other.child, child)) count += other.subscriptions.size();
  }
  return count;
}

void Uploads::grow(const Manifest& manifest, Subscription& s) {
  if (s.done.size() == manifest.chunk_count()) return;
  const ChunkSet held =
      ChunkSet::from_bytes(manifest.chunk_count(), s.held_bytes ? std::string_view(*s.held_bytes) : std::string_view());
  ChunkIndex from{s.done.size()};
  s.done.grow(manifest.chunk_count());
  for (auto c = held.next_in(from); c; c = held.next_in(ChunkIndex{c->value + 1})) s.done.insert(*c);
  for (const auto& [first, end] : std::exchange(s.skipped, {})) {
    for (std::uint32_t c = first; c < std::min(end, s.done.size()); ++c) s.done.insert(ChunkIndex{c});
  }
  for (auto part = static_cast<std::uint32_t>(s.parts_sent.size()); part < manifest.part_count(); ++part) {
    s.parts_sent.push_back(part < s.parts_held);
  }
  if (!manifest.open) s.held_bytes.reset();
}

std::optional<ChunkIndex> Uploads::next_chunk(const Holding& holding, Subscription& s) {
  while (const auto chunk = holding.verified().next_in_without(s.done, s.cursor)) {
    s.cursor = *chunk;
    if (s.stripes.stripe_of(*chunk) == s.stripe) return chunk;
    s.done.insert(*chunk);  // so that no later search visits it again
  }
  return std::nullopt;
}

void Uploads::pump(ChildState& child) {
  while (child.in_flight.size() < kInFlightChunksMin || child.in_flight_bytes < kInFlightBytes) {
    const Key* key = nullptr;
    Subscription* next = nullptr;
    ChunkIndex chunk{};
    for (auto& [candidate_key, candidate] : child.subscriptions) {
      if (!candidate.ready || candidate.exhausted || (next != nullptr && candidate.tag >= next->tag)) continue;
      const auto found = next_chunk(holdings_.at(candidate_key.first), candidate);
      if (!found) {
        candidate.exhausted = true;
        note_idle(candidate);
        continue;
      }
      key = &candidate_key;
      next = &candidate;
      chunk = *found;
    }
    if (next == nullptr) return;
    send(*key, *next, chunk, child);
  }
}

void Uploads::send(const Key& key, Subscription& s, ChunkIndex chunk, ChildState& child) {
  const PayloadId payload = key.first;
  const Holding& holding = holdings_.at(payload);
  const std::uint32_t part = holding.manifest().part_of(chunk);
  if (!s.parts_sent[part]) {
    wire::Message message;
    wire::DigestPart* out = message.mutable_digest_part();
    set_payload(*out, payload);
    out->set_part(part);
    const auto& digests = holding.part(part);
    out->set_digests(digests.data(), digests.size() * ContentDigest::kBytes);
    actions_.push(action::Send{s.conn, std::move(message)});
    s.parts_sent[part] = true;
  }
  s.done.insert(chunk);
  s.cursor = ChunkIndex{chunk.value + 1};
  ++s.in_flight;
  child.tag = s.tag;
  s.tag += kTagPerChunk / s.weight;
  const std::uint32_t bytes = holding.manifest().chunk_size(chunk);
  child.in_flight.push_back({key, bytes, s.stripes.count()});
  child.in_flight_bytes += bytes;
  actions_.push(action::SendChunk{s.conn, payload, chunk, count_copy(child, holding.manifest())});
}

Rate Uploads::count_copy(const ChildState& child, const Manifest& manifest) {
  if (child.copies == nullptr) return Rate{};
  const std::uint64_t chunks = ++(*child.copies)[manifest.id()];
  if (chunks == kCopiesMax * manifest.chunk_count()) greedy_.emplace_back(child.child.name, manifest.id());
  // A disk that was lost is a reason for a second copy.
  if (chunks <= 2 * manifest.chunk_count()) return Rate{};
  return uplink_.limited() ? Rate{kAgainShare * uplink_.bytes_per_s} : kAgainUnknown;
}

void Uploads::resume(Subscription& s, ChildState& child) {
  // One that had nothing to send has no claim to the turns it let pass.
  if (std::exchange(s.exhausted, false)) s.tag = std::max(s.tag, child.tag);
  pump(child);
}

void Uploads::handle_unsubscribe(ConnId conn, const wire::Unsubscribe& request) {
  const auto child = children_.find(conn);
  if (child == children_.end()) return;
  const Key key{payload_of(request), request.stripe()};
  const auto s = child->second.subscriptions.find(key);
  if (s != child->second.subscriptions.end()) {
    // Or it would ask anew again and again, and no time-out would ever come.
    if (!s->second.ready && holdings_.contains(key.first) && !has_place(child->second, key.first)) {
      placeless_.push_back(conn);
      due_ = due_ ? std::min(*due_, s->second.told_at) : s->second.told_at;
    }
    child->second.subscriptions.erase(s);
  }
  if (!request.answer() || child->second.draining.size() >= kSubscriptionsMax) return;
  child->second.draining.push_back(key);
  answer_drained(conn, child->second);
}

void Uploads::handle_skip(ConnId conn, const wire::Skip& request) {
  const auto child = children_.find(conn);
  if (child == children_.end()) return;
  const PayloadId payload = payload_of(request);
  const std::uint32_t first = request.first_chunk();
  if (first >= kChunksMax) return;
  const std::uint32_t end = first + std::min(request.chunks(), kSkippedChunksMax);
  for (auto& [key, s] : child->second.subscriptions) {
    if (key.first != payload) continue;
    if (s.ready) {
      for (std::uint32_t c = first; c < std::min(end, s.done.size()); ++c) s.done.insert(ChunkIndex{c});
    } else if (!s.skipped.empty() && s.skipped.back().first == end) {
      s.skipped.back().first = first;
    } else if (s.skipped.size() < kSkippedRangesMax) {
      s.skipped.emplace_back(first, end);
    }
  }
  pump(child->second);  // it may have nothing more to send
}

void Uploads::answer_drained(ConnId conn, ChildState& child) {
  std::erase_if(child.draining, [&](const Key& key) {
    if (std::ranges::find(child.in_flight, key, &InFlight::key) != child.in_flight.end()) return false;
    wire::Message message;
    set_payload(*message.mutable_unsubscribed(), key.first);
    message.mutable_unsubscribed()->set_stripe(key.second);
    actions_.push(action::Send{conn, std::move(message)});
    return true;
  });
}

void Uploads::handle_closed(ConnId conn) { children_.erase(conn); }

void Uploads::handle_chunk_sent(ConnId conn) {
  const auto found = children_.find(conn);
  if (found == children_.end() || found->second.in_flight.empty()) return;
  ChildState& child = found->second;
  const auto [key, bytes, stripes] = child.in_flight.front();
  child.in_flight.pop_front();
  child.in_flight_bytes -= bytes;
  bytes_sent_ += bytes;
  bytes_sent_of_[key.first.version] += bytes;
  if (bytes_sent_of_.size() > kVersionsCounted) bytes_sent_of_.erase(bytes_sent_of_.begin());
  if (holdings_.contains(key.first)) {
    Sent& sent = child.sent[key];
    ++sent.chunks;
    sent.stripes = stripes;
  }
  if (!child.draining.empty()) answer_drained(conn, child);
  const auto s = child.subscriptions.find(key);
  if (s != child.subscriptions.end()) {  // else unsubscribed meanwhile
    --s->second.in_flight;
    note_idle(s->second);
  }
  pump(child);
}

void Uploads::handle_known(PayloadId payload) {
  for (auto& [conn, child] : children_) {
    // All of them first: each one's turn may be the next.
    for (auto& [key, s] : child.subscriptions) {
      if (key.first == payload && s.ready) grow(holdings_.at(payload).manifest(), s);
    }
    for (auto next = child.subscriptions.begin(); next != child.subscriptions.end();) {
      auto& [key, s] = *next++;  // to start it may end it
      if (key.first != payload) continue;
      if (s.ready) {
        s.cursor = ChunkIndex{0};  // digests may have made chunks of any place whole
        resume(s, child);
      } else {
        start(payload, s, child);
      }
    }
  }
}

void Uploads::handle_placed() {
  for (auto& [conn, child] : children_) {
    for (auto next = child.subscriptions.begin(); next != child.subscriptions.end();) {
      auto& [key, s] = *next++;
      if (!s.ready && holdings_.contains(key.first)) start(key.first, s, child);
    }
  }
}

void Uploads::handle_verified(PayloadId payload, ChunkIndex chunk) {
  for (auto& [conn, child] : children_) {
    for (auto& [key, s] : child.subscriptions) {
      if (key.first != payload || !s.ready || s.done.contains(chunk) || s.stripes.stripe_of(chunk) != s.stripe)
        continue;
      if (chunk < s.cursor) s.cursor = chunk;
      resume(s, child);
    }
  }
}

void Uploads::refuse(ConnId conn, PayloadId payload, std::string_view reason) {
  actions_.push(action::Send{conn, not_available(payload, reason)});
}

void Uploads::withdraw(PayloadId payload, std::string_view reason) {
  for (auto& [name, copies] : copies_) copies.erase(payload);
  for (auto& [conn, child] : children_) {
    std::erase_if(child.sent, [&](const auto& sent) { return sent.first.first == payload; });
    const auto erased = std::erase_if(child.subscriptions, [&](const auto& s) { return s.first.first == payload; });
    if (erased > 0) refuse(conn, payload, reason);
  }
}

std::uint64_t Uploads::chunks_sent(PeerId id, PayloadId payload, std::uint32_t stripe, std::uint32_t stripes) const {
  std::uint64_t chunks = 0;
  for (const auto& [conn, child] : children_) {
    if (child.child.id != id) continue;
    for (const auto& [key, sent] : child.sent) {
      if (key.first == payload && std::uint64_t{key.second} * stripes / sent.stripes == stripe) chunks += sent.chunks;
    }
  }
  return chunks;
}

bool Uploads::wanted(PayloadId payload) const {
  return std::ranges::any_of(children_, [&](const auto& child) {
    return std::ranges::any_of(child.second.subscriptions, [&](const auto& s) { return s.first.first == payload; });
  });
}

void Uploads::handle_timeout(Instant now) {
  if (!due_ || now < *due_) return;
  due_.reset();
  for (auto& [conn, child] : children_) {
    for (auto s = child.subscriptions.begin(); s != child.subscriptions.end();) {
      const auto& [payload, stripe] = s->first;
      if (!s->second.ready && now - s->second.told_at >= timeouts_.unknown_version) {
        if (holdings_.contains(payload)) {
          if (!has_place(child, payload)) {
            placeless_.push_back(conn);
            break;
          }
          start(payload, s->second, child);
          ++s;
          continue;
        }
        refuse(conn, payload, "this node has not begun the version");
        s = child.subscriptions.erase(s);
        continue;
      }
      if (s->second.was_idle && now - s->second.told_at >= timeouts_.up_to_date) {
        wire::Message message;
        set_payload(*message.mutable_up_to_date(), payload);
        message.mutable_up_to_date()->set_stripe(stripe);
        actions_.push(action::Send{conn, std::move(message)});
        s->second.told_at = now;
        s->second.was_idle = is_idle(s->second);
      }
      note_due(s->second);
      ++s;
    }
  }
}

void Uploads::note_idle(Subscription& s) {
  if (!is_idle(s)) return;
  s.was_idle = true;
  note_due(s);
}

void Uploads::note_due(const Subscription& s) {
  if (s.ready && !s.was_idle) return;
  const Instant due = s.told_at + (s.ready ? timeouts_.up_to_date : timeouts_.unknown_version);
  due_ = due_ ? std::min(*due_, due) : due;
}

std::vector<ConnId> Uploads::conns() const {
  std::vector<ConnId> conns;
  for (const auto& [conn, child] : children_) conns.push_back(conn);
  return conns;
}

std::vector<std::string> Uploads::children() const {
  std::vector<std::string> names;
  for (const auto& [conn, child] : children_) {
    if (!child.subscriptions.empty()) names.push_back(child.child.name);
  }
  return names;
}

}  // namespace weightcast
