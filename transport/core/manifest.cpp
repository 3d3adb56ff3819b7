#include "transport/core/manifest.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "proto/wire.pb.h"

namespace weightcast {
namespace {

Error bad(std::string detail) { return fail(Errc::kCorrupt, Op::kParse, "manifest: " + std::move(detail)); }

std::string to_text(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), Digest::kBytes};
}

}  // namespace

std::uint64_t Manifest::snapshot_bytes() const {
  std::uint64_t total = 0;
  for (const SnapshotFile& file : files) total += file.size_bytes;
  return total;
}

std::vector<Digest> part_digests_of(const std::vector<Digest>& chunks) {
  std::vector<Digest> parts;
  for (std::size_t first = 0; first < chunks.size(); first += kDigestsPerPart) {
    const std::size_t count = std::min<std::size_t>(kDigestsPerPart, chunks.size() - first);
    parts.push_back(digest_of(std::as_bytes(std::span(chunks).subspan(first, count))));
  }
  return parts;
}

Result<Manifest> manifest_from_wire(const wire::Manifest& message) {
  Manifest m;
  if (message.model_id().size() > kNameBytesMax) return bad("model id longer than 255 bytes");
  m.model_id = message.model_id();
  m.version = Version{message.version()};
  m.base_version = Version{message.base_version()};
  if (m.version == kNoVersion) return bad("version 0");
  switch (message.kind()) {
    case wire::PAYLOAD_KIND_FULL: m.kind = PayloadKind::kFull; break;
    case wire::PAYLOAD_KIND_PATCH: m.kind = PayloadKind::kPatch; break;
    default: return bad("unknown payload kind; is the origin a newer release?");
  }
  if ((m.kind == PayloadKind::kPatch) != (m.base_version != kNoVersion)) return bad("base version and kind disagree");
  if (m.base_version >= m.version) return bad("base version is not before the version");

  m.chunk_bytes = message.chunk_bytes();
  if (m.chunk_bytes < kChunkBytesMin || m.chunk_bytes > kChunkBytesMax || !std::has_single_bit(m.chunk_bytes)) {
    return bad(fmt::format("chunk size {}", m.chunk_bytes));
  }
  m.payload_bytes = message.payload_bytes();
  if (m.payload_bytes == 0 || m.payload_bytes > kPayloadBytesMax) {
    return bad(fmt::format("payload of {} bytes", m.payload_bytes));
  }
  if ((m.payload_bytes + m.chunk_bytes - 1) / m.chunk_bytes > kChunksMax) return bad("too many chunks");
  if (message.part_digests().size() != std::size_t{m.part_count()} * Digest::kBytes) {
    return bad("number of part digests does not fit the number of chunks");
  }
  m.part_digests.resize(m.part_count());
  std::memcpy(m.part_digests.data(), message.part_digests().data(), message.part_digests().size());

  if (message.files().empty() || std::size_t(message.files_size()) > kFilesMax) return bad("number of files");
  for (const wire::FileEntry& file : message.files()) m.files.push_back({file.name(), file.size_bytes()});
  const Result<FileTable> table = FileTable::make(m.files);
  if (!table.has_value()) return bad(table.error().detail);
  if (table->size_bytes() > kPayloadBytesMax) return bad("files too large");
  if (m.kind == PayloadKind::kFull && table->size_bytes() != m.payload_bytes) {
    return bad("files and payload differ in size");
  }
  if (message.snapshot_digest().size() != Digest::kBytes) return bad("snapshot digest is not 16 bytes");
  std::memcpy(m.snapshot_digest.bytes.data(), message.snapshot_digest().data(), Digest::kBytes);
  m.published_unix_ms = message.published_unix_ms();
  return m;
}

wire::Manifest manifest_to_wire(const Manifest& m) {
  wire::Manifest message;
  message.set_model_id(m.model_id);
  message.set_version(m.version.value);
  message.set_base_version(m.base_version.value);
  message.set_kind(m.kind == PayloadKind::kFull ? wire::PAYLOAD_KIND_FULL : wire::PAYLOAD_KIND_PATCH);
  message.set_payload_bytes(m.payload_bytes);
  message.set_chunk_bytes(m.chunk_bytes);
  for (const Digest& digest : m.part_digests) message.mutable_part_digests()->append(to_text(digest));
  for (const SnapshotFile& file : m.files) {
    wire::FileEntry* entry = message.add_files();
    entry->set_name(file.name);
    entry->set_size_bytes(file.size_bytes);
  }
  message.set_snapshot_digest(to_text(m.snapshot_digest));
  message.set_published_unix_ms(m.published_unix_ms);
  return message;
}

}  // namespace weightcast
