// What the archive of a simulation answers.
#include <algorithm>

#include "sim/simulation.h"
#include "sim/stand_ins.h"

namespace weightcast::sim {

void Simulation::perform(NodeIndex node, action::FindArchived& find) {
  start_archive_read({.node = node, .request = find.request, .payload = find.manifest->id(), .finds = true});
}

void Simulation::perform(NodeIndex node, action::ReadArchived& read) {
  start_archive_read({.node = node,
                      .request = read.request,
                      .payload = read.manifest->id(),
                      .next = read.first,
                      .end = ChunkIndex{read.first.value + read.chunks}});
}

void Simulation::perform(NodeIndex node, action::EndArchived& end) { nodes_[node].archive_requests.erase(end.request); }

void Simulation::start_archive_read(ArchiveRead read) {
  Node& node = nodes_[read.node];
  read.incarnation = node.incarnation;
  const ArchiveOptions& archive = options_.archive;
  if (archive.fault != ArchiveOptions::Fault::kNone && random_.chance(archive.fault_probability)) {
    read.fault = archive.fault;
  }
  node.archive_requests.insert(read.request);
  archive_reads_.push_back(read);
  if (read.fault == ArchiveOptions::Fault::kStalls) return;
  const auto index = static_cast<std::uint32_t>(archive_reads_.size() - 1);
  if (read.finds || read.fault == ArchiveOptions::Fault::kFails || read.fault == ArchiveOptions::Fault::kUnranged) {
    return events_.schedule(now_ + archive.delay, EventKind::kArchive, index);
  }
  go_on_reading(index);
}

void Simulation::go_on_reading(std::uint32_t index) {
  const ArchiveRead& read = archive_reads_[index];
  Node& node = nodes_[read.node];
  const std::uint32_t bytes = payloads_.at(read.payload).manifest->chunk_size(read.next);
  const Instant begins = read.is_answered ? now_ : now_ + options_.archive.delay;
  node.archive_free_at =
      std::max(node.archive_free_at, begins) + from_seconds(bytes / options_.archive.rate.bytes_per_s);
  events_.schedule(node.archive_free_at, EventKind::kArchive, index);
}

void Simulation::handle_archive(const Event& event) {
  using ArchiveFault = ArchiveOptions::Fault;
  ArchiveRead& read = archive_reads_[event.a];
  Node& node = nodes_[read.node];
  if (!node.core || node.incarnation != read.incarnation || !node.archive_requests.contains(read.request)) return;
  const Payload& payload = payloads_.at(read.payload);
  const NodeIndex index = read.node;
  if (read.finds) {
    node.archive_requests.erase(read.request);
    std::vector<ContentDigest> digests = payload.digests;
    if (read.fault == ArchiveFault::kDiffers) digests.back() = wrong(digests.back());
    const Error lacks = fail(Errc::kNotFound, Op::kRead, "the archive does not have that version whole");
    const bool has = payload.complete && read.fault != ArchiveFault::kLacks;
    node.worker->handle_archive_found(local(index), read.payload, read.request,
                                      has ? Result<std::vector<ContentDigest>>(std::move(digests)) : lacks);
  } else if (read.fault == ArchiveFault::kFails || read.fault == ArchiveFault::kUnranged) {
    const bool passes = read.fault == ArchiveFault::kFails;
    node.archive_requests.erase(read.request);
    node.worker->handle_archive_ended(local(index), read.payload, read.request,
                                      fail(passes ? Errc::kIo : Errc::kUnsupported, Op::kReceive,
                                           passes ? "the connection is cut" : "the whole object came"));
  } else {
    const ChunkIndex chunk = read.next;
    const bool damaged = read.fault == ArchiveFault::kLies;
    const ContentDigest& digest = payload.digests[chunk.value];
    ++read.next.value;
    read.is_answered = true;
    const std::uint32_t request = read.request;
    const PayloadId id = read.payload;
    const bool was_last = read.next == read.end;
    if (was_last) {
      node.archive_requests.erase(request);
    } else {
      go_on_reading(event.a);
    }
    ++result_.archive_chunks;
    node.worker->handle_archive_chunk(
        local(index), request,
        {id, chunk, payload.manifest->chunk_size(chunk), damaged ? wrong(digest) : digest, stand_in(damaged)});
    if (was_last) node.worker->handle_archive_ended(local(index), id, request, {});
  }
  pump(index);
}

}  // namespace weightcast::sim
