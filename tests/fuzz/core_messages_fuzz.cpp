// Arbitrary messages, chunks and disk answers, in any order, to a worker or an origin: it must not stop the process,
// nor go on for ever, nor send or install what was not verified.
//
// The first byte chooses the core (bit 0: an origin, which packs with bit 1; else a worker), then each step is an
// operation and its arguments:
//   0         a connection comes in
//   1 C L l M message M of 256 * L + l bytes on connection C (counted from the latest)
//   2 C V k f chunk k of version V; f: bit 0 damaged, bit 1 of another size, the others: of a patch from version f / 4
//   3 C       C, which the core dials, is connected
//   4 C       C is closed
//   5 C       C's oldest chunk has left
//   6 t       t * 20 ms pass
//   7 f       the disk answers what it was asked first; f: bit 0 with an error, bit 1 that error is corruption
//             (and so does who compares versions)
//   8         the origin publishes the next version
// and from 128 on what a peer says that means harm:
//   128 C V n l  C announces version V of n chunks, whose first part has the digest of a list of l bytes
//   129 C V p l  C sends part p of version V: that list
//   130 C b k    C names version 2^b - 1 of kind k wherever a message names a payload
//   131 C V k    C says that chunk k of version V is damaged
#include <deque>
#include <map>
#include <set>

#include "tests/fuzz/fuzz_input.h"
#include "tests/transport/core/payload_fixture.h"
#include "transport/core/origin/origin_core.h"
#include "transport/core/worker/worker_core.h"

namespace weightcast {
namespace {

constexpr int kActionsMax = 2'000'000;  // for one input; a subscription to a large payload sends thousands
constexpr std::size_t kConnsMax = 64;
constexpr std::uint32_t kPublishedChunks = 40;
constexpr std::uint32_t kPatchChunks = 3;
constexpr std::uint8_t kMalice = 128;

/// The list of digests that stands in one part and fits its digest, whatever its length.
std::string list_of(std::size_t size) {
  std::string list(size, '\0');
  for (std::size_t i = 0; i < size; ++i) list[i] = static_cast<char>(7 * i);
  return list;
}

/// Drives one core, and checks what it wants done.
class Harness {
 public:
  Harness(bool worker, bool packs) {
    if (worker) {
      WorkerConfig config;
      config.name = "w";
      config.origin_host = "origin";
      config.origin_port = 1;
      config.listen_port = 2;
      auto core = std::make_unique<WorkerCore>(config);
      worker_ = core.get();
      core_ = std::move(core);
    } else {
      OriginConfig config;
      config.uplink = Rate::bits(300e6);
      config.packing = packs ? Packing::kAlways : Packing::kNever;
      auto core = std::make_unique<OriginCore>(config);
      origin_ = core.get();
      core_ = std::move(core);
    }
    core_->start(now_);
    drain();
  }

  void step(FuzzInput& input) {
    const std::uint8_t what = input.byte();
    if (what >= kMalice) return (void)be_malicious(what, input), drain();
    switch (what % 9) {
      case 0: {
        const ConnId conn = core_->next_conn();
        open(conn);
        core_->handle_accepted(now_, conn, "host");
        break;
      }
      case 1: {
        const ConnId conn = conn_at(input.byte());
        const std::size_t size = std::size_t{input.byte()} * 256;
        const auto text = input.bytes(size + input.byte());
        wire::Message message;
        if (conn != ConnId{} && message.ParseFromArray(text.data(), static_cast<int>(text.size()))) {
          core_->handle_message(now_, conn, message);
        }
        break;
      }
      case 2: {
        const ConnId conn = conn_at(input.byte());
        const Version version{input.byte()};
        const ChunkIndex index{input.byte()};
        const std::uint8_t flags = input.byte();
        if (conn == ConnId{} || dialling_.contains(conn)) break;
        ChunkArrival chunk = chunk_of(version, index, (flags & 1) != 0);
        if ((flags & 2) != 0) chunk.size_bytes = 17;
        if (flags >= 4) chunk.payload = patch_of(version, Version{std::uint64_t{flags} / 4});
        arrived_[{chunk.payload, index}].insert(chunk.digest);
        core_->handle_chunk(now_, conn, chunk);
        break;
      }
      case 3: {
        const ConnId conn = conn_at(input.byte());
        if (dialling_.erase(conn) > 0) core_->handle_connected(now_, conn);
        break;
      }
      case 4: {
        const ConnId conn = conn_at(input.byte());
        if (conn == ConnId{}) break;
        close(conn);
        core_->handle_closed(now_, conn, fail(Errc::kClosed, Op::kReceive, "closed"));
        break;
      }
      case 5: {
        const ConnId conn = conn_at(input.byte());
        if (sending_[conn] == 0) break;
        --sending_[conn];
        core_->handle_chunk_sent(now_, conn);
        break;
      }
      case 6: {
        now_ += std::chrono::milliseconds(20 * input.byte());
        for (int spins = 0; core_->poll_deadline() && *core_->poll_deadline() <= now_; ++spins) {
          WC_CHECK(spins < 100);  // a deadline that stays in the past
          core_->handle_timeout(now_);
          drain();
        }
        break;
      }
      case 7: answer(input.byte()); break;
      case 8:
        if (origin_ != nullptr && !taking_over_ && origin_->publications().latest().value < 200) {
          const Version version{origin_->publications().latest().value + 1};
          if (!origin_->publications().check_version(version).has_value()) break;
          taking_over_ = what / 9 % 2 == 1;
          const PayloadId patch = patch_of(version, origin_->publications().latest());
          if (what / 9 % 4 == 2 && patch.base != kNoVersion) {
            origin_->handle_publish(
                now_, now_, {growing_manifest(patch, kPatchChunks, false), chunk_digests(version, kPatchChunks)});
          } else if (what / 9 % 4 == 3 && patch.base != kNoVersion) {
            origin_->handle_publish_begun(now_, growing_manifest(patch, 0));
            asked_.push_back({Asked::kTakeover, patch, {}, kGrowingPartChunks});
          } else if (taking_over_) {
            origin_->handle_publish_begun(now_, taken_over_manifest(version, 0, kPublishedChunks));
            asked_.push_back({Asked::kTakeover, version, {}, kGrowingPartChunks});
          } else {
            origin_->handle_publish(now_, now_,
                                    {manifest_of(version, kPublishedChunks), chunk_digests(version, kPublishedChunks)});
          }
        }
        break;
    }
    drain();
  }

 private:
  void be_malicious(std::uint8_t what, FuzzInput& input) {
    const ConnId conn = conn_at(input.byte());
    std::vector<wire::Message> messages(1);
    switch (what % 4) {
      case 0: {
        const Version version{input.byte()};
        const std::uint32_t chunks = 1u + input.byte();
        const std::string list = list_of(input.byte());
        Manifest manifest = *manifest_of(version, chunks);
        manifest.part_digests = {content_digest_of(std::as_bytes(std::span(list)))};
        wire::Announce* announce = messages[0].mutable_announce();
        *announce->mutable_manifest() = manifest_to_wire(manifest);
        set_payload(*announce->mutable_assignment(), manifest.id());
        announce->mutable_assignment()->set_epoch(version.value);
        announce->mutable_assignment()->add_stripes()->add_ancestors();
        announce->mutable_assignment()->add_stripe_weights(1);
        break;
      }
      case 1:
        set_payload(*messages[0].mutable_digest_part(), Version{input.byte()});
        messages[0].mutable_digest_part()->set_part(input.byte());
        messages[0].mutable_digest_part()->set_digests(list_of(input.byte()));
        break;
      case 2: {
        const unsigned bits = input.byte() % 65;
        wire::PayloadId named;
        named.set_version(bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1);
        named.set_kind(static_cast<wire::PayloadKind>(input.byte() % 5));
        messages = naming(named);
        break;
      }
      case 3:
        set_payload(*messages[0].mutable_chunk_damaged(), Version{input.byte()});
        messages[0].mutable_chunk_damaged()->set_chunk(input.byte());
        messages.resize(2);
        *messages[1].mutable_skip()->mutable_payload() = messages[0].chunk_damaged().payload();
        messages[1].mutable_skip()->set_first_chunk(messages[0].chunk_damaged().chunk());
        messages[1].mutable_skip()->set_chunks(~0u >> (messages[0].chunk_damaged().chunk() % 32));
        break;
    }
    for (const wire::Message& message : messages) {
      if (conn != ConnId{} && !dialling_.contains(conn)) core_->handle_message(now_, conn, message);
    }
  }

  static std::vector<wire::Message> naming(const wire::PayloadId& named) {
    std::vector<wire::Message> messages(9);
    *messages[0].mutable_subscribe()->mutable_payload() = named;
    *messages[1].mutable_unsubscribe()->mutable_payload() = named;
    *messages[2].mutable_heartbeat()->mutable_receiving() = named;
    *messages[3].mutable_installed()->mutable_payload() = named;
    *messages[4].mutable_install_failed()->mutable_payload() = named;
    *messages[5].mutable_parent_fault()->mutable_payload() = named;
    *messages[6].mutable_growth()->mutable_payload() = named;
    *messages[7].mutable_announce()->mutable_manifest() = manifest_to_wire(*manifest_of(Version{1}, 1));
    *messages[7].mutable_announce()->mutable_manifest()->mutable_payload() = named;
    *messages[8].mutable_not_available()->mutable_payload() = named;
    return messages;
  }

  struct Asked {
    enum { kBegin, kStore, kFinish, kPatch, kGrowth, kTakeover, kCheck } what;
    PayloadId payload{};
    ChunkIndex chunk{};
    std::uint32_t chunks = 0;
  };

  void open(ConnId conn) {
    conns_.push_front(conn);
    if (conns_.size() > kConnsMax) conns_.pop_back();
  }
  void close(ConnId conn) {
    std::erase(conns_, conn);
    dialling_.erase(conn);
    sending_.erase(conn);
  }
  [[nodiscard]] ConnId conn_at(std::uint8_t place) const {
    return conns_.empty() ? ConnId{} : conns_[place % conns_.size()];
  }

  void answer(std::uint8_t flags) {
    if (asked_.empty()) return;
    const Asked asked = asked_.front();
    asked_.pop_front();
    const Errc code = (flags & 2) != 0 ? Errc::kCorrupt : Errc::kNoSpace;
    const Status status = (flags & 1) != 0 ? Status(fail(code, Op::kWrite, "no")) : Status();
    switch (asked.what) {
      case Asked::kBegin:
        if (!status.has_value()) return worker_->handle_payload_begun(now_, asked.payload, status.error());
        begun_.insert(asked.payload);
        return worker_->handle_payload_begun(now_, asked.payload, RestoredPayload{{}, ChunkSet(asked.chunks)});
      case Asked::kCheck:
        if (!status.has_value()) return core_->handle_chunk_checked(now_, asked.payload, asked.chunk, status.error());
        return core_->handle_chunk_checked(now_, asked.payload, asked.chunk,
                                           chunk_digest(asked.payload.version, asked.chunk));
      case Asked::kStore:
        if (status.has_value()) stored_[asked.payload].insert(asked.chunk);
        return worker_->handle_chunk_stored(now_, asked.payload, asked.chunk, status);
      case Asked::kFinish: return worker_->handle_finished(now_, asked.payload, status);
      case Asked::kPatch: {
        if (!status.has_value()) return origin_->handle_payload_made(now_, asked.payload, status.error());
        if ((flags & 4) != 0) {
          asked_.push_back({Asked::kGrowth, asked.payload, {}, kGrowingPartChunks});
          return origin_->handle_payload_begun(now_, growing_manifest(asked.payload, 0));
        }
        auto manifest = std::make_shared<Manifest>(*manifest_of(asked.payload.version, kPatchChunks));
        manifest->base_version = asked.payload.base;
        manifest->kind = asked.payload.kind;
        const auto digests = chunk_digests(asked.payload.version, kPatchChunks);
        return origin_->handle_payload_made(now_, asked.payload, MadePayload{std::move(manifest), digests});
      }
      case Asked::kGrowth: {
        if (!status.has_value()) return origin_->handle_payload_made(now_, asked.payload, status.error());
        const auto digests = chunk_digests(asked.payload.version, asked.chunks);
        if (asked.chunks == 3 * kGrowingPartChunks) {
          return origin_->handle_payload_made(
              now_, asked.payload, MadePayload{growing_manifest(asked.payload, asked.chunks, false), digests});
        }
        asked_.push_back({Asked::kGrowth, asked.payload, {}, asked.chunks + kGrowingPartChunks});
        return origin_->handle_payload_grown(now_, MadePayload{growing_manifest(asked.payload, asked.chunks), digests});
      }
      case Asked::kTakeover: {
        const Version version = asked.payload.version;
        const std::uint32_t chunks = std::min(asked.chunks, kPublishedChunks);
        const MadePayload made{asked.payload.is_full()
                                   ? taken_over_manifest(version, chunks, kPublishedChunks)
                                   : growing_manifest(asked.payload, chunks, chunks < kPublishedChunks),
                               chunk_digests(version, chunks)};
        taking_over_ = status.has_value() && made.manifest->open;
        if (!status.has_value()) return origin_->handle_publish_failed(now_, version, status.error().detail);
        if (!taking_over_) return origin_->handle_publish(now_, now_, made);
        asked_.push_back({Asked::kTakeover, asked.payload, {}, chunks + kGrowingPartChunks});
        return origin_->handle_publish_grown(now_, made);
      }
    }
  }

  void drain() {
    while (auto action = core_->poll_action()) {
      WC_CHECK(++actions_ < kActionsMax);
      std::visit([this](const auto& a) { perform(a); }, *action);
    }
    if (worker_ == nullptr) return;
    WC_CHECK(worker_->installed_version() >= installed_);
    installed_ = worker_->installed_version();
  }

  void perform(const action::Connect& connect) {
    WC_CHECK(connect.port != 0);
    open(connect.conn);
    dialling_.insert(connect.conn);
  }
  void perform(const action::Close& gone) { close(gone.conn); }
  void perform(const action::SendChunk& send) {
    const Holdings& holdings = worker_ != nullptr ? worker_->holdings() : origin_->holdings();
    const Holding& holding = holdings.at(send.payload);
    WC_CHECK(holding.verified().contains(send.chunk));
    if (worker_ != nullptr) check_arrived(holding, send.chunk);
    ++sending_[send.conn];
  }
  void perform(const action::StoreChunk& store) {
    WC_CHECK(worker_ != nullptr);
    check_arrived(worker_->holdings().at(store.payload), store.chunk);
    asked_.push_back({Asked::kStore, store.payload, store.chunk, 0});
  }
  void perform(const action::BeginPayload& begin) {
    asked_.push_back({Asked::kBegin, begin.manifest->id(), {}, begin.manifest->chunk_count()});
    note_extent(*begin.manifest);
  }
  void perform(const action::GrowPayload& grow) { note_extent(*grow.manifest); }
  void perform(const action::FinishPayload& finish) {
    WC_CHECK(!open_.contains(finish.payload));
    WC_CHECK(stored_[finish.payload].size() == chunks_.at(finish.payload));
    asked_.push_back({Asked::kFinish, finish.payload, {}, 0});
  }
  void perform(const action::DiscardPayload& discard) {
    stored_.erase(discard.payload);
    begun_.erase(discard.payload);
    std::erase_if(asked_, [&](const Asked& a) { return a.payload == discard.payload && a.what == Asked::kStore; });
  }
  void perform(const action::MakePayload& make) { asked_.push_back({Asked::kPatch, make.payload, {}, 0}); }
  void perform(const action::Send&) {}
  void perform(const action::PutDigestPart& put) {
    WC_CHECK(begun_.contains(put.payload));  // a store has no place for it before
    WC_CHECK(put.digests.size() == worker_->holdings().at(put.payload).manifest().part_size(put.part));
  }
  void perform(const action::CheckChunk& check) { asked_.push_back({Asked::kCheck, check.payload, check.chunk, 0}); }
  void perform(const action::FindArchived&) {}
  void perform(const action::ReadArchived&) {}
  void perform(const action::EndArchived&) {}
  void perform(const action::FollowRun&) {}
  void perform(const action::TakeRevocations&) {}
  void perform(const action::Enroll&) {}
  void perform(const action::Refused&) {}
  void perform(const action::Log&) {}

  void note_extent(const Manifest& manifest) {
    chunks_[manifest.id()] = manifest.chunk_count();
    manifest.open ? void(open_.insert(manifest.id())) : void(open_.erase(manifest.id()));
  }

  /// That what is called verified came, under the digest that the manifest gives it.
  void check_arrived(const Holding& holding, ChunkIndex chunk) {
    const auto arrived = arrived_.find({holding.manifest().id(), chunk});
    WC_CHECK(arrived != arrived_.end());
    const ContentDigest& wanted =
        holding.part(holding.manifest().part_of(chunk))[chunk.value % holding.manifest().part_chunks];
    WC_CHECK(std::ranges::count(arrived->second, wanted) > 0);
  }

  struct DigestLess {
    bool operator()(const ContentDigest& a, const ContentDigest& b) const { return a.bytes < b.bytes; }
  };

  std::unique_ptr<Core> core_;
  WorkerCore* worker_ = nullptr;
  OriginCore* origin_ = nullptr;
  Instant now_{std::chrono::hours(1)};
  std::deque<ConnId> conns_;
  std::set<ConnId> dialling_;
  std::map<ConnId, int> sending_;
  std::deque<Asked> asked_;
  std::map<PayloadId, std::set<ChunkIndex>> stored_;
  std::map<PayloadId, std::uint32_t> chunks_;
  std::set<PayloadId> open_;
  std::set<PayloadId> begun_;
  std::map<std::pair<PayloadId, ChunkIndex>, std::set<ContentDigest, DigestLess>> arrived_;
  Version installed_{};
  bool taking_over_ = false;
  int actions_ = 0;
};

}  // namespace
}  // namespace weightcast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weightcast::FuzzInput input(data, size);
  const std::uint8_t which = input.byte();
  weightcast::Harness harness((which & 1) == 0, (which & 2) != 0);
  while (!input.empty()) harness.step(input);
  return 0;
}
