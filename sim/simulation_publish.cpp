// The payloads of a simulation, which have sizes and digests and no bytes.
#include "sim/simulation.h"

namespace weightcast::sim {
namespace {

template <typename Digest>
Digest stand_in_digest(PayloadId payload, ChunkIndex chunk) {
  Random random(payload.version.value * 0x100000001b3 ^ std::hash<PayloadId>()(payload) ^ chunk.value);
  Digest digest;
  for (std::size_t i = 0; i < Digest::kBytes; i += 8) {
    const std::uint64_t word = random.next();
    std::copy_n(reinterpret_cast<const std::byte*>(&word), 8, digest.bytes.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return digest;
}

/// What a patch or packed payload takes of its full one.
double share_of(PayloadId id, const PatchOptions& options) {
  if (id.is_packed()) return options.packed_share;
  // Most cells that change in two versions are not the same, so a fold grows; but less than the sum.
  return options.share * (1 + 0.8 * double(id.version.value - id.base.value - 1));
}

/// Of whole parts, after `growth` of `growths` equal steps.
std::uint32_t chunks_after(const Manifest& whole, std::uint32_t growth, std::uint32_t growths) {
  return whole.chunk_count() / whole.part_chunks * growth / growths * whole.part_chunks;
}

}  // namespace

MadePayload Simulation::so_far(const Payload& payload) const {
  MadePayload made{nullptr, {payload.digests.begin(), payload.digests.begin() + payload.made_chunks}};
  Manifest open = *payload.manifest;
  open.open = true;
  open.expected_bytes = std::exchange(open.payload_bytes, std::uint64_t{payload.made_chunks} * open.chunk_bytes);
  open.part_digests.resize(payload.made_chunks / open.part_chunks);
  if (open.kind == PayloadKind::kFull) open.snapshot_digest = {};
  author_.sign(open);
  made.manifest = std::make_shared<const Manifest>(std::move(open));
  return made;
}

void Simulation::publish() {
  Node& node = nodes_[0];
  if (!node.origin || node.stalls > 0 || takeover_) {
    ++publications_waiting_;
    return;
  }
  const Version version{latest_.value + 1};
  const std::optional<PayloadId> patch = choose_patch(version);
  takeover_ = Takeover{patch.value_or(version), now_, local(0)};
  if (patch) payload_of_size(*patch, *encoded_bytes(*patch), chunk_bytes_of(*patch));
  if (patch && options_.takeover.growths > 0) return go_on_taking_over(options_.takeover.growths);
  if (patch) return handle_published();
  Payload& payload = payload_of_size(version, options_.payload_bytes, chunk_bytes_of(version));
  if (options_.takeover.growths == 0) return handle_published();
  payload.made_chunks = 0;
  node.origin->handle_publish_begun(local(0), so_far(payload).manifest,
                                    options_.takeover.packable ? options_.patches.packed_share : 1.0);
  pump(0);
  go_on_taking_over(1);
}

std::optional<PayloadId> Simulation::choose_patch(Version version) {
  const Version base = nodes_[0].origin->publications().latest();
  const bool may = options_.takeover.by_patch_probability > 0 && nodes_[0].origin->config().patches;
  if (!may || base == kNoVersion) return std::nullopt;
  const PayloadId patch = patch_of(version, base);
  if (!random_.chance(options_.takeover.by_patch_probability) || !encoded_bytes(patch)) return std::nullopt;
  return patch;
}

std::uint32_t Simulation::chunk_bytes_of(PayloadId id) const {
  if (id.is_full()) {
    const Plan plan = nodes_[0].origin->publications().plan_for(local(0), options_.payload_bytes);
    return options_.chunk_bytes.value_or(std::max(plan.chunk_bytes, options_.chunk_bytes_min));
  }
  const std::uint32_t smaller = id.is_packed() ? 1 : 16;
  if (options_.chunk_bytes) return std::max(*options_.chunk_bytes / smaller, kChunkBytesMin);
  return nodes_[0].origin->publications().plan_for(local(0), *encoded_bytes(id)).chunk_bytes;
}

void Simulation::go_on_taking_over(std::uint32_t growth) {
  start_disk_work(now_ + options_.takeover.lasts / options_.takeover.growths,
                  {.work = DiskWork::kTakeOver, .growth = growth});
}

void Simulation::handle_taken_over(std::uint32_t growth) {
  OriginCore& origin = *nodes_[0].origin;
  const Version version = takeover_->payload.version;
  Payload& payload = payloads_.at(takeover_->payload);
  if (growth < options_.takeover.growths) {
    payload.made_chunks = chunks_after(*payload.manifest, growth, options_.takeover.growths);
    origin.handle_publish_grown(local(0), so_far(payload));
    pump(0);
    return go_on_taking_over(growth + 1);
  }
  if (!random_.chance(options_.takeover.refused_probability)) return handle_published();
  ++result_.versions_refused;
  takeover_.reset();
  origin.handle_publish_failed(local(0), version, "it is refused");
  pump(0);
  if (options_.takeover.tries_again) publish();
}

void Simulation::handle_published() {
  OriginCore& origin = *nodes_[0].origin;
  const Takeover takeover = *std::exchange(takeover_, std::nullopt);
  const PayloadId id = takeover.payload;
  Payload& payload = payloads_.at(id);
  payload.complete = true;
  payload.made_chunks = payload.manifest->chunk_count();
  latest_ = id.version;
  published_[id.version] = id;
  quiet_since_ = now_;
  origin.handle_publish(local(0), takeover.local_at, {payload.manifest, payload.digests});

  PublicationResult& publication = result_.publications.emplace_back();
  publication.version = id.version;
  publication.chunk_bytes = payload.manifest->chunk_bytes;
  publication.installed.resize(options_.workers);
  if (const Plan* made = origin.publications().latest_plan()) {
    publication.topology = made->topology;
    publication.predicted = made->predicted_t100;
    publication.bound = made->bound;
  }
  published_at_.push_back(takeover.at);
  done_below_ = 1;
  pump(0);
  publish_what_waits();
}

Simulation::Payload& Simulation::payload_of_size(PayloadId id, std::uint64_t bytes, std::uint32_t chunk_bytes) {
  const auto [made, added] = payloads_.try_emplace(id);
  if (!added) return made->second;
  Manifest manifest;
  if (id.is_encoded() && options_.patches.growths > 0) manifest.part_chunks = options_.patches.part_chunks;
  if (!id.is_encoded() && options_.takeover.growths > 0) manifest.part_chunks = options_.takeover.part_chunks;
  manifest.model_id = "simulated";
  manifest.version = id.version;
  manifest.base_version = id.base;
  manifest.kind = id.kind;
  manifest.payload_bytes = bytes;
  manifest.chunk_bytes = chunk_bytes;
  manifest.files.push_back({"model.safetensors", options_.payload_bytes});
  manifest.snapshot_digest = stand_in_digest<Checksum>(id.version, ChunkIndex{kNoIndex});
  for (std::uint32_t c = 0; c < manifest.chunk_count(); ++c) {
    made->second.digests.push_back(stand_in_digest<ContentDigest>(id, ChunkIndex{c}));
  }
  manifest.part_digests = part_digests_of(made->second.digests, manifest.part_chunks);
  author_.sign(manifest);
  made->second.made_chunks = manifest.chunk_count();
  made->second.manifest = std::make_shared<const Manifest>(std::move(manifest));
  return made->second;
}

std::optional<std::uint64_t> Simulation::encoded_bytes(PayloadId id) const {
  if (options_.encoded_bytes) return options_.encoded_bytes(id);
  // Always the same of one id, also after a restart of the origin.
  Random random(options_.seed ^ (id.version.value << 20) ^ std::hash<PayloadId>()(id));
  if (!payloads_.contains(id) && random.chance(options_.patches.useless_probability)) return std::nullopt;
  const double share = share_of(id, options_.patches);
  if (share >= (id.is_packed() ? kPackedShareMax : kPatchShareMax)) return std::nullopt;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(share * double(options_.payload_bytes)));
}

void Simulation::handle_make_payload(PayloadId id) {
  OriginCore& origin = *nodes_[0].origin;
  const std::optional<std::uint64_t> bytes = id.is_full() ? options_.payload_bytes : encoded_bytes(id);
  if (!bytes) {
    origin.handle_payload_made(local(0), id, fail(Errc::kTooLarge, Op::kEncode, "too much has changed"));
    return;
  }
  Payload& payload = payload_of_size(id, *bytes, chunk_bytes_of(id));
  if (growths_of(id) == 0) return handle_payload_whole(payload);
  payload.made_chunks = 0;
  origin.handle_payload_begun(local(0), so_far(payload).manifest);
  start_growth(id, 1);
}

std::uint32_t Simulation::growths_of(PayloadId id) const {
  return id.is_full() ? options_.takeover.growths : options_.patches.growths;
}

void Simulation::handle_payload_whole(Payload& payload) {
  const PayloadId id = payload.manifest->id();
  payload.complete = true;
  payload.made_chunks = payload.manifest->chunk_count();
  if (id.is_full()) ++result_.full_payloads_made;
  nodes_[0].origin->handle_payload_made(local(0), id, MadePayload{payload.manifest, payload.digests});
}

void Simulation::start_growth(PayloadId id, std::uint32_t growth) {
  const Duration lasts = id.is_full() ? options_.takeover.lasts : options_.patches.make_delay;
  start_disk_work(now_ + lasts / growths_of(id), {.work = DiskWork::kGrowPayload, .payload = id, .growth = growth});
}

void Simulation::handle_grow_payload(PayloadId id, std::uint32_t growth) {
  OriginCore& origin = *nodes_[0].origin;
  Payload& payload = payloads_.at(id);
  if (growth < growths_of(id)) {
    payload.made_chunks = chunks_after(*payload.manifest, growth, growths_of(id));
    origin.handle_payload_grown(local(0), so_far(payload));
    return start_growth(id, growth + 1);
  }
  Random random(options_.seed ^ (id.base.value << 20) ^ id.version.value);
  if (id.is_full() || !random.chance(options_.patches.withdrawn_probability)) return handle_payload_whole(payload);
  ++result_.patches_withdrawn;
  origin.handle_payload_made(local(0), id, fail(Errc::kTooLarge, Op::kEncode, "too much has changed"));
}

void Simulation::publish_what_waits() {
  for (std::uint32_t waiting = std::exchange(publications_waiting_, 0); waiting > 0; --waiting) publish();
}

}  // namespace weightcast::sim
