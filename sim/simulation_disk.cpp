// What the stores of a simulation answer.
#include <fmt/format.h>

#include "sim/simulation.h"
#include "sim/stand_ins.h"

namespace weightcast::sim {

void Simulation::start_disk_work(Instant due, DiskOperation operation) {
  operation.incarnation = nodes_[operation.node].incarnation;
  std::uint32_t slot = free_disk_operation_;
  if (slot == kNoIndex) {
    slot = static_cast<std::uint32_t>(disk_operations_.size());
    disk_operations_.emplace_back();
  } else {
    free_disk_operation_ = disk_operations_[slot].next;
  }
  disk_operations_[slot] = operation;
  if (due <= now_) {
    due_now_.push_back({now_, 0, EventKind::kDisk, slot, 0});
  } else {
    events_.schedule(due, EventKind::kDisk, slot);
  }
}

void Simulation::handle_disk(const Event& event) {
  const DiskOperation operation = disk_operations_[event.a];
  disk_operations_[event.a].next = free_disk_operation_;
  free_disk_operation_ = event.a;
  const NodeIndex index = operation.node;
  Node& node = nodes_[index];
  if (!node.core || node.incarnation != operation.incarnation) return;
  const PayloadId id = operation.payload;
  switch (operation.work) {
    case DiskWork::kMakePayload: handle_make_payload(id); return pump(index);
    case DiskWork::kGrowPayload: handle_grow_payload(id, operation.growth); return pump(index);
    case DiskWork::kTakeOver: return handle_taken_over(operation.growth);
    default: break;
  }
  const Version version = id.version;
  const Payload& payload = payloads_.at(id);
  const Error full = fail(Errc::kNoSpace, Op::kWrite, "the disk is full");
  switch (operation.work) {
    case DiskWork::kCheck: {
      const ContentDigest& digest = payload.digests[operation.chunk.value];
      const bool rotten = node.troubles.rotten.contains({id, operation.chunk});
      node.core->handle_chunk_checked(local(index), id, operation.chunk, rotten ? wrong(digest) : digest);
      break;
    }
    case DiskWork::kBegin: {
      if (operation.failed) {
        node.worker->handle_payload_begun(local(index), id, full);
        break;
      }
      // What the origin makes anew is another manifest until it has come to its end.
      if (operation.open) node.disk.discard(id);
      Disk::Partial& partial = node.disk.begin(id, payload.manifest->chunk_count(), payload.manifest->part_count());
      partial.open = operation.open;
      partial.room_chunks = operation.chunks;
      RestoredPayload restored;
      std::uint32_t parts = 0;
      while (parts < partial.parts.size() && partial.parts[parts]) ++parts;
      const std::size_t known =
          std::min<std::size_t>(std::size_t{parts} * payload.manifest->part_chunks, payload.digests.size());
      restored.chunk_digests.assign(payload.digests.begin(),
                                    payload.digests.begin() + static_cast<std::ptrdiff_t>(known));
      restored.held = ChunkSet(payload.manifest->chunk_count());
      for (auto c = partial.written.next_in(ChunkIndex{0}); c && c->value < known;
           c = partial.written.next_in(ChunkIndex{c->value + 1})) {
        restored.held.insert(*c);
      }
      node.handed.put(id, restored.held);
      node.worker->handle_payload_begun(local(index), id, std::move(restored));
      break;
    }
    case DiskWork::kStore: {
      node.storing_bytes -= payload.manifest->chunk_size(operation.chunk);
      throttle_reading(index);
      Disk::Partial* partial = node.disk.find(id);
      const bool failed = operation.failed || partial == nullptr;
      if (!failed) node.disk.handle_written(now_, *partial, operation.chunk);
      node.worker->handle_chunk_stored(local(index), id, operation.chunk, failed ? Status(full) : Status());
      break;
    }
    case DiskWork::kFinish:
      if (operation.failed) {
        node.worker->handle_finished(local(index), id, full);
        break;
      }
      if (node.troubles.damages_snapshots) {
        node.worker->handle_finished(local(index), id, fail(Errc::kCorrupt, Op::kInstall, "the digest does not match"));
        break;
      }
      if (id.is_encoded() && (node.troubles.damages_bases || random_.chance(options_.patches.unfit_probability))) {
        ++result_.patches_unfit;
        const Errc code = id.is_packed() ? Errc::kCorrupt : Errc::kWrongBase;
        node.worker->handle_finished(local(index), id, fail(code, Op::kDecode, "nothing can be made of it"));
        break;
      }
      if (id.is_patch()) ++result_.patches_installed;
      if (id.is_packed()) ++result_.packed_installed;
      if (version <= node.installed) {
        return violate(
            fmt::format("{} goes back from version {} to {}", name_of(index), node.installed.value, version.value));
      }
      node.disk.finish(now_, id);
      node.installed = version;
      for (std::size_t i = 0; i < result_.publications.size(); ++i) {
        auto& installed = result_.publications[i].installed[index - 1];
        if (result_.publications[i].version <= version && !installed) installed = now_ - published_at_[i];
      }
      node.worker->handle_finished(local(index), id, {});
      break;
    default: return;  // of the origin, above
  }
  pump(index);
}

}  // namespace weightcast::sim
