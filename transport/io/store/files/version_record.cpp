#include "transport/io/store/files/version_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/units.h"
#include "proto/record.pb.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

constexpr std::string_view kMagic = "wcrecord";
// A form beyond this is damage, and not a release to come: what is damaged is fetched again.
constexpr std::uint32_t kFormMax = 9;
constexpr std::size_t kHeadBytes = kMagic.size() + 4;
constexpr std::size_t kEntryHeadBytes = 4 + Checksum::kBytes;
// The largest entry is a manifest with kFilesMax long names; the largest record has all digests besides.
constexpr std::size_t kEntryBytesMax = 16 * kMiB;
constexpr std::size_t kRecordBytesMax = kEntryBytesMax + 2 * std::size_t{kChunksMax} * ContentDigest::kBytes;

void put_u32(std::string& out, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

std::uint32_t get_u32(std::string_view in) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t{static_cast<unsigned char>(in[i])} << (8 * i);
  return value;
}

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

void put_entry(std::string& out, const record::Entry& entry) {
  const std::string body = entry.SerializeAsString();
  put_u32(out, static_cast<std::uint32_t>(body.size()));
  const Checksum digest = checksum_of(bytes_of(body));
  out.append(reinterpret_cast<const char*>(digest.bytes.data()), Checksum::kBytes);
  out += body;
}

/// Takes the first entry off `in`; nothing when it is not whole.
std::optional<record::Entry> take_entry(std::string_view& in) {
  if (in.size() < kEntryHeadBytes) return std::nullopt;
  const std::size_t body_bytes = get_u32(in);
  if (body_bytes > kEntryBytesMax || in.size() - kEntryHeadBytes < body_bytes) return std::nullopt;
  const std::string_view body = in.substr(kEntryHeadBytes, body_bytes);
  const Checksum digest = checksum_of(bytes_of(body));
  if (std::memcmp(digest.bytes.data(), in.data() + 4, Checksum::kBytes) != 0) return std::nullopt;
  record::Entry entry;
  if (!entry.ParseFromArray(body.data(), static_cast<int>(body.size()))) return std::nullopt;
  in.remove_prefix(kEntryHeadBytes + body_bytes);
  return entry;
}

record::Entry digest_part_entry(std::uint32_t part, std::span<const ContentDigest> digests) {
  record::Entry entry;
  wire::DigestPart* message = entry.mutable_digest_part();
  message->set_part(part);
  message->set_digests(digests.data(), digests.size_bytes());
  return entry;
}

/// Appends in one write, so that a crash leaves all of the entry or a torn one, which the reader stops at.
Status append(File& file, const record::Entry& entry, const std::filesystem::path& path) {
  std::string text;
  put_entry(text, entry);
  WC_ASSIGN(const FileInfo before, file.info());
  WC_ASSIGN(const std::size_t put, file.append(bytes_of(text)));
  if (put == text.size()) return {};
  // Else whatever is appended later would stand behind a torn entry, where no reader comes.
  WC_TRY(file.truncate(before.size_bytes));
  return fail_errno(ENOSPC, Op::kWrite, path.native());
}

std::string text_of(const VersionRecord& record) {
  std::string text(kMagic);
  put_u32(text, kRecordForm);
  record::Entry first;
  *first.mutable_manifest() = manifest_to_wire(record.manifest);
  put_entry(text, first);
  for (std::uint32_t part = 0; part < record.digests.parts.size(); ++part) {
    if (!record.digests.parts.contains(ChunkIndex{part})) continue;
    put_entry(text, digest_part_entry(part, record.digests.part(part)));
  }
  if (record.durable) {
    record::Entry mark;
    mark.mutable_durable();
    put_entry(text, mark);
  }
  return text;
}

Result<std::unique_ptr<File>> open_to_append(FileSystem& files, const std::filesystem::path& path) {
  return files.open(path, {.write = true, .append = true});
}

}  // namespace

ChunkDigests::ChunkDigests(const Manifest& manifest)
    : chunks(manifest.chunk_count()), parts(manifest.part_count()), part_chunks(manifest.part_chunks) {}

ChunkDigests::ChunkDigests(const Manifest& manifest, std::vector<ContentDigest> digests)
    : chunks(std::move(digests)), parts(manifest.part_count(), true), part_chunks(manifest.part_chunks) {}

void ChunkDigests::grow(const Manifest& manifest) {
  chunks.resize(manifest.chunk_count());
  parts.grow(manifest.part_count());
}

std::span<const ContentDigest> ChunkDigests::part(std::uint32_t part) const {
  const std::size_t first = std::size_t{part} * part_chunks;
  return std::span(chunks).subspan(first, std::min<std::size_t>(part_chunks, chunks.size() - first));
}

Status ChunkDigests::put_part(const Manifest& manifest, std::uint32_t part, std::span<const ContentDigest> digests) {
  if (part >= parts.size()) return fail(Errc::kCorrupt, Op::kVerify, "a digest part past the manifest's last");
  if (this->part(part).size() != digests.size() ||
      content_digest_of(std::as_bytes(digests)) != manifest.part_digests[part]) {
    return fail(Errc::kCorrupt, Op::kVerify, "a digest part that does not match the manifest");
  }
  std::copy(digests.begin(), digests.end(), chunks.begin() + std::ptrdiff_t{part} * part_chunks);
  parts.insert(ChunkIndex{part});
  return {};
}

std::vector<ContentDigest> ChunkDigests::prefix() const {
  const std::optional<ChunkIndex> gap = parts.next_missing(ChunkIndex{0});
  if (!gap) return chunks;
  return {chunks.begin(), chunks.begin() + std::ptrdiff_t{gap->value} * part_chunks};
}

Status write_record(FileSystem& files, const std::filesystem::path& path, const VersionRecord& record) {
  return replace_file(files, path, text_of(record), Synced::kNothing);
}

Status rewrite_record(FileSystem& files, const std::filesystem::path& path, const VersionRecord& record) {
  return replace_file(files, path, text_of(record), Synced::kBytes);
}

Status append_digest_part(FileSystem& files, const std::filesystem::path& path, std::uint32_t part,
                          std::span<const ContentDigest> digests) {
  WC_ASSIGN(const std::unique_ptr<File> file, open_to_append(files, path));
  return append(*file, digest_part_entry(part, digests), path);
}

Status append_durable_mark(FileSystem& files, const std::filesystem::path& path) {
  WC_ASSIGN(const std::unique_ptr<File> file, open_to_append(files, path));
  record::Entry mark;
  mark.mutable_durable();
  WC_TRY(append(*file, mark, path));
  return file->sync_data();
}

Status write_record_again(FileSystem& files, const std::filesystem::path& path) {
  WC_ASSIGN(const std::string text, read_file(files, path, kRecordBytesMax));
  return replace_file(files, path, text, Synced::kBytesAndName);
}

Result<VersionRecord> read_record(FileSystem& files, const std::filesystem::path& path) {
  WC_ASSIGN(const std::string text, read_file(files, path, kRecordBytesMax));
  std::string_view left = text;
  if (left.size() < kHeadBytes || !left.starts_with(kMagic)) {
    return fail(Errc::kCorrupt, Op::kParse, path.native() + ": not a record");
  }
  const std::uint32_t form = get_u32(left.substr(kMagic.size()));
  if (form != kRecordForm) {
    if (form == 0 || form > kFormMax) return fail(Errc::kCorrupt, Op::kParse, path.native() + ": not a record");
    return fail(Errc::kUnsupported, Op::kParse,
                fmt::format("{}: a record of form {}, this release reads form {}; run the release that wrote it, or "
                            "give another directory with --state: what was published arrives there again",
                            path.native(), form, kRecordForm));
  }
  left.remove_prefix(kHeadBytes);
  std::optional<record::Entry> first = take_entry(left);
  if (!first || !first->has_manifest()) {
    return fail(Errc::kCorrupt, Op::kParse, path.native() + ": does not begin with a whole manifest");
  }
  WC_ASSIGN(Manifest manifest, manifest_from_wire(first->manifest()));
  VersionRecord record{manifest, ChunkDigests(manifest)};
  std::size_t whole_bytes = text.size() - left.size();
  for (; const std::optional<record::Entry> entry = take_entry(left); whole_bytes = text.size() - left.size()) {
    if (entry->has_durable()) {
      // A version that a patch or packed payload brought has no chunk digests of its own.
      record.durable = record.digests.complete() || manifest.id().is_encoded();
    } else if (entry->has_digest_part()) {
      const auto digests = digests_from_wire(entry->digest_part().digests());
      if (!digests || !record.digests.put_part(manifest, entry->digest_part().part(), *digests).has_value()) break;
    }
  }
  if (whole_bytes < text.size()) record.torn_at = whole_bytes;
  return record;
}

Status cut_torn_entry(FileSystem& files, const std::filesystem::path& path, VersionRecord& record) {
  if (!record.torn_at) return {};
  WC_ASSIGN(const std::unique_ptr<File> file, files.open(path, {.write = true}));
  WC_TRY(file->truncate(*record.torn_at));
  record.torn_at.reset();
  return {};
}

}  // namespace weightcast
