#include "transport/core/manifest/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "patch/snapshot/tensor.h"
#include "proto/wire.pb.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

Error bad(std::string detail) { return fail(Errc::kCorrupt, Op::kParse, "manifest: " + std::move(detail)); }

/// Sizes, chunks and parts: what a growth changes, too.
Status check_extent(const Manifest& m) {
  if (m.payload_bytes > kPayloadBytesMax || (m.payload_bytes == 0 && !m.open)) {
    return bad(fmt::format("payload of {} bytes", m.payload_bytes));
  }
  if ((m.payload_bytes + m.chunk_bytes - 1) / m.chunk_bytes > kChunksMax) return bad("too many chunks");
  if (m.part_digests.size() != m.part_count()) return bad("number of part digests does not fit the number of chunks");
  if (!m.open && m.kind == PayloadKind::kFull && m.payload_bytes != m.snapshot_bytes()) {
    return bad("files and payload differ in size");
  }
  if (!m.open) return {};
  if (m.payload_bytes % (std::uint64_t{m.chunk_bytes} * m.part_chunks) != 0)
    return bad("an open payload that is not whole parts");
  if (m.payload_bytes > m.snapshot_bytes()) return bad("an open payload that is larger than its snapshot");
  return {};
}

/// The digest of a full payload is known with its end.
bool is_digest_due(const Manifest& m) { return m.kind != PayloadKind::kFull || !m.open; }

Status read_checksum(const std::string& field, Checksum& digest) {
  const std::optional<Checksum> read = checksum_from_wire(field);
  if (!read) return bad("snapshot digest is not 16 bytes");
  digest = *read;
  return {};
}

bool is_chunk_size(std::uint32_t bytes) {
  return bytes >= kChunkBytesMin && bytes <= kChunkBytesMax && std::has_single_bit(bytes);
}

Status read_tree(const wire::HashTree& message, HashTree& tree) {
  const auto root = digests_from_wire(message.root());
  if (!is_chunk_size(message.chunk_bytes()) || message.part_chunks() == 0 || message.part_chunks() > kDigestsPerPart ||
      !root || root->size() != 1) {
    return bad("the tree of its snapshot");
  }
  tree = {message.chunk_bytes(), message.part_chunks(), root->front()};
  return {};
}

Status read_signature(const wire::Manifest& message, ManifestSignature& signature) {
  if (message.signature().size() > kSignatureBytesMax || message.certificate().size() > kCertificateBytesMax) {
    return bad("signature or certificate too long");
  }
  signature = {message.signature(), message.certificate()};
  return {};
}

/// Of what is no file tree.
Status check_weights_file(const SnapshotFile& file) {
  const Status safe = check_file_name(file.name);
  if (!safe.has_value()) return bad(safe.error().detail);
  if (file.executable) return bad(fmt::format("file {} of weights is executable", quoted_name(file.name)));
  return {};
}

Status read_payload(const wire::PayloadId& payload, Manifest& m) {
  const PayloadId id = payload_from_wire(payload);
  m.version = id.version;
  m.kind = id.kind;
  m.base_version = id.base;
  if (id != PayloadId{}) return {};
  if (payload.version() == 0 || payload.version() > kVersionMax.value) {
    return bad(fmt::format("version {}; versions start at 1 and end at {}", payload.version(), kVersionMax.value));
  }
  if (payload.kind() < wire::PAYLOAD_KIND_FULL || payload.kind() > wire::PAYLOAD_KIND_PATCH) {
    return bad("unknown payload kind; is the origin a newer release?");
  }
  return bad(fmt::format("base version {} of version {}", payload.base_version(), payload.version()));
}

Result<std::vector<ContentDigest>> digests_from(const std::string& text) {
  if (auto digests = digests_from_wire(text)) return std::move(*digests);
  return bad("part digests are not a multiple of 32 bytes");
}

}  // namespace

std::uint64_t Manifest::snapshot_bytes() const {
  std::uint64_t total = 0;
  for (const SnapshotFile& file : files) total += file.size_bytes;
  return total;
}

namespace {

ContentDigest root_of_parts(const std::vector<ContentDigest>& parts) {
  return content_digest_of(std::as_bytes(std::span(parts)));
}

}  // namespace

ContentDigest Manifest::root() const { return root_of_parts(part_digests); }

bool Manifest::can_be_part(std::uint32_t part, std::size_t list_bytes) const {
  if (part < part_count()) return list_bytes == std::size_t{part_size(part)} * ContentDigest::kBytes;
  const bool whole = list_bytes > 0 && list_bytes % ContentDigest::kBytes == 0;
  if (!open || !whole || list_bytes / ContentDigest::kBytes > part_chunks) return false;
  return part < kChunksMax / part_chunks && can_be_chunk(ChunkIndex{part * part_chunks}, 1);
}

bool Manifest::can_be_chunk(ChunkIndex chunk, std::size_t size_bytes) const {
  if (chunk.value < chunk_count()) return size_bytes == chunk_size(chunk);
  return open && size_bytes > 0 && size_bytes <= chunk_bytes && chunk_offset(chunk) < snapshot_bytes();
}

std::vector<ContentDigest> part_digests_of(const std::vector<ContentDigest>& chunks, std::uint32_t part_chunks) {
  std::vector<ContentDigest> parts;
  for (std::size_t first = 0; first < chunks.size(); first += part_chunks) {
    const std::size_t count = std::min<std::size_t>(part_chunks, chunks.size() - first);
    parts.push_back(content_digest_of(std::as_bytes(std::span(chunks).subspan(first, count))));
  }
  return parts;
}

ContentDigest root_over(const std::vector<ContentDigest>& chunks, std::uint32_t part_chunks) {
  return root_of_parts(part_digests_of(chunks, part_chunks));
}

Result<Manifest> manifest_from_wire(const wire::Manifest& message) {
  Manifest m;
  if (message.model_id().size() > kNameBytesMax) return bad("model id longer than 255 bytes");
  m.model_id = message.model_id();
  WC_TRY(read_payload(message.payload(), m));

  m.chunk_bytes = message.chunk_bytes();
  if (!is_chunk_size(m.chunk_bytes)) return bad(fmt::format("chunk size {}", m.chunk_bytes));
  m.payload_bytes = message.payload_bytes();
  if (message.part_chunks() > kDigestsPerPart) return bad("parts of too many chunks");
  if (message.part_chunks() > 0) m.part_chunks = message.part_chunks();
  m.open = message.open();
  m.expected_bytes = m.open ? message.expected_bytes() : 0;
  WC_ASSIGN(m.part_digests, digests_from(message.part_digests()));

  if (message.files().empty() || std::size_t(message.files_size()) > kFilesMax) return bad("number of files");
  m.file_tree = message.file_tree();
  for (const wire::FileEntry& file : message.files()) {
    m.files.push_back({file.name(), file.size_bytes(), file.executable()});
    if (!m.file_tree) WC_TRY(check_weights_file(m.files.back()));
  }
  const Result<FileTable> table = FileTable::make(m.files);
  if (!table.has_value()) return bad(table.error().detail);
  if (table->size_bytes() > kPayloadBytesMax) return bad("files too large");
  WC_TRY(check_extent(m));
  if (is_digest_due(m)) WC_TRY(read_checksum(message.snapshot_digest(), m.snapshot_digest));
  m.published_unix_ms = message.published_unix_ms();
  m.run = RunId{message.run_id()};
  if (m.id().is_encoded() && message.has_snapshot_tree()) WC_TRY(read_tree(message.snapshot_tree(), m.snapshot_tree));
  WC_TRY(read_signature(message, m.signature));
  return m;
}

wire::Manifest manifest_to_wire(const Manifest& m) {
  wire::Manifest message;
  message.set_model_id(m.model_id);
  set_payload(message, m.id());
  message.set_payload_bytes(m.payload_bytes);
  message.set_chunk_bytes(m.chunk_bytes);
  for (const ContentDigest& digest : m.part_digests) message.mutable_part_digests()->append(bytes_of(digest));
  for (const SnapshotFile& file : m.files) {
    wire::FileEntry* entry = message.add_files();
    entry->set_name(file.name);
    entry->set_size_bytes(file.size_bytes);
    entry->set_executable(file.executable);
  }
  message.set_file_tree(m.file_tree);
  message.set_snapshot_digest(std::string(bytes_of(m.snapshot_digest)));
  message.set_published_unix_ms(m.published_unix_ms);
  if (m.part_chunks != kDigestsPerPart) message.set_part_chunks(m.part_chunks);
  message.set_open(m.open);
  message.set_expected_bytes(m.expected_bytes);
  message.set_run_id(m.run.value);
  if (m.snapshot_tree.chunk_bytes > 0) {
    wire::HashTree* tree = message.mutable_snapshot_tree();
    tree->set_chunk_bytes(m.snapshot_tree.chunk_bytes);
    tree->set_part_chunks(m.snapshot_tree.part_chunks);
    tree->set_root(std::string(bytes_of(m.snapshot_tree.root)));
  }
  message.set_signature(m.signature.bytes);
  message.set_certificate(m.signature.certificate);
  return message;
}

bool continues(const Manifest& earlier, const Manifest& later) {
  const bool same = earlier.id() == later.id() && earlier.chunk_bytes == later.chunk_bytes &&
                    earlier.part_chunks == later.part_chunks && earlier.files == later.files &&
                    earlier.run == later.run && earlier.model_id == later.model_id &&
                    earlier.snapshot_tree == later.snapshot_tree && earlier.file_tree == later.file_tree;
  if (!same || (is_digest_due(earlier) && earlier.snapshot_digest != later.snapshot_digest)) return false;
  if (!earlier.open) {
    return !later.open && earlier.payload_bytes == later.payload_bytes && earlier.part_digests == later.part_digests;
  }
  return earlier.payload_bytes <= later.payload_bytes &&
         std::equal(earlier.part_digests.begin(), earlier.part_digests.end(), later.part_digests.begin());
}

Result<Manifest> grown_by(const Manifest& manifest, const wire::Growth& growth) {
  const std::size_t known = manifest.part_digests.size();
  const std::size_t before = growth.parts_before();
  if (before > known) return bad("a growth leaves a gap");
  Manifest grown = manifest;
  grown.part_digests.resize(before);
  WC_ASSIGN(const std::vector<ContentDigest> more, digests_from(growth.part_digests()));
  grown.part_digests.insert(grown.part_digests.end(), more.begin(), more.end());
  grown.payload_bytes = growth.payload_bytes();
  grown.open = growth.open();
  if (!grown.open) grown.expected_bytes = 0;
  if (growth.signature().size() > kSignatureBytesMax) return bad("a growth's signature is too long");
  grown.signature.bytes = growth.signature();
  WC_TRY(check_extent(grown));
  if (grown.payload_bytes > grown.snapshot_bytes()) return bad("a patch that is larger than its snapshot");
  if (!is_digest_due(manifest) && is_digest_due(grown)) {
    WC_TRY(read_checksum(growth.snapshot_digest(), grown.snapshot_digest));
  }
  if (continues(manifest, grown)) return grown;
  if (continues(grown, manifest)) return manifest;
  return bad("a growth changes parts that are known");
}

wire::Growth growth_between(const Manifest& earlier, const Manifest& later) {
  wire::Growth growth;
  set_payload(growth, later.id());
  growth.set_payload_bytes(later.payload_bytes);
  growth.set_parts_before(earlier.part_count());
  for (std::size_t part = earlier.part_count(); part < later.part_count(); ++part) {
    growth.mutable_part_digests()->append(bytes_of(later.part_digests[part]));
  }
  growth.set_open(later.open);
  growth.set_signature(later.signature.bytes);
  if (!is_digest_due(earlier) && is_digest_due(later)) {
    growth.set_snapshot_digest(std::string(bytes_of(later.snapshot_digest)));
  }
  return growth;
}

}  // namespace weightcast
