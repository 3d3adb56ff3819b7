#include "patch/apply/undo.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "patch/codec/byte_io.h"
#include "patch/codec/segment.h"

namespace weightcast {
namespace {

// File: magic, length of a tag, tag, digest of all that; the tag is empty in what this release writes. Then records:
// magic, length of the body, digest of both and of the body, body. Body: offset, then runs of (bytes to skip, bytes to
// write, bytes), all numbers LEB128.
constexpr std::uint64_t kFileMagic = 0x01'4f'44'4e'55'43'57'00;  // "\0WCUNDO" and the format's version
constexpr std::uint32_t kRecordMagic = 0x4f444e57;               // "WNDO"
// A disk writes a sector of 512 bytes whole or not at all, and the file's first bytes fit into one.
constexpr std::size_t kTagBytesMax = 256;
constexpr std::size_t kRecordPrefixBytes = 4 + 8 + Checksum::kBytes;
// A range of changes is of one segment. Its runs take less than twice its bytes, and each of their numbers no more
// than four.
constexpr std::uint64_t kBodyBytesMax = 2 * std::uint64_t{kSegmentBytesMax};
constexpr std::size_t kRunNumberBytesMax = 4;
static_assert(kSegmentBytesMax < 1u << (7 * kRunNumberBytesMax));

Checksum record_digest(Bytes fields, Bytes body) {
  ChecksumStream digest;
  digest.update(fields);
  digest.update(body);
  return digest.digest();
}

std::byte* put_varint(std::byte* at, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) *at++ = std::byte(value | 0x80);
  *at++ = std::byte(value);
  return at;
}

/// Cells beside each other are one run.
std::vector<std::byte> make_body(std::uint64_t offset, unsigned cell_bytes, std::span<const std::uint32_t> cells,
                                 Bytes old_values) {
  constexpr std::size_t kNumberBytesMax = 10;
  std::vector<std::byte> body(kNumberBytesMax + cells.size() * 2 * kRunNumberBytesMax + old_values.size());
  std::byte* at = put_varint(body.data(), offset);
  std::uint64_t done = 0;
  for (std::size_t begin = 0, end = 0; begin < cells.size(); begin = end) {
    while (++end < cells.size() && cells[end] == cells[end - 1] + 1) continue;
    const std::uint64_t first = std::uint64_t{cells[begin]} * cell_bytes;
    const std::size_t size = (end - begin) * cell_bytes;
    at = put_varint(put_varint(at, first - done), size);
    std::memcpy(at, old_values.data() + begin * cell_bytes, size);
    at += size;
    done = first + size;
  }
  body.resize(std::size_t(at - body.data()));
  return body;
}

Status remove_journal(FileSystem& files, const std::string& path) {
  WC_TRY(files.remove(path));
  return sync_directory(files, std::filesystem::path(path).parent_path());
}

/// Positions of the whole records' bodies, in order: offset in the file, length.
using Records = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

Result<Records> scan(File& file, const std::string& path) {
  WC_ASSIGN(const FileInfo info, file.info());
  const std::uint64_t size = info.size_bytes;
  const auto damaged = [&] {
    return fail(
        Errc::kCorrupt, Op::kParse,
        path + ": it does not begin as an undo journal; the data it belongs to cannot be trusted, fetch it whole");
  };
  Records records;
  std::vector<std::byte> bytes(std::min<std::uint64_t>(size, 8 + 4 + kTagBytesMax + Checksum::kBytes));
  WC_TRY(read_fully(file, 0, bytes, path));
  ByteReader reader(bytes);
  const auto magic = reader.fixed<std::uint64_t>();
  const auto tag_bytes = reader.fixed<std::uint32_t>();
  // Cut short, or lost by a power cut before its first sync, which leaves zeros: nothing was overwritten yet.
  if (!reader.ok() || magic == 0u) return records;
  if (magic != kFileMagic || tag_bytes > kTagBytesMax) return damaged();
  static_cast<void>(reader.bytes(tag_bytes));
  const std::size_t fields_bytes = reader.position();
  const Checksum digest = reader.digest();
  if (!reader.ok()) return records;  // as above
  if (digest != checksum_of(Bytes(bytes).first(fields_bytes))) return damaged();
  std::vector<std::byte> body;
  for (std::uint64_t at = reader.position(); at + kRecordPrefixBytes <= size;) {
    std::array<std::byte, kRecordPrefixBytes> prefix;
    WC_TRY(read_fully(file, at, prefix, path));
    ByteReader fields(prefix);
    const auto record_magic = fields.fixed<std::uint32_t>();
    const auto body_bytes = fields.fixed<std::uint64_t>();
    const std::uint64_t body_at = at + kRecordPrefixBytes;
    // A torn record may claim any length, and a file with a hole would bring all of that into memory.
    if (record_magic != kRecordMagic || body_bytes > kBodyBytesMax || body_bytes > size - body_at) break;
    body.resize(std::size_t(body_bytes));
    WC_TRY(read_fully(file, body_at, body, path));
    if (fields.digest() != record_digest(Bytes(prefix).first(12), body)) break;
    records.emplace_back(body_at, body_bytes);
    at = body_at + body_bytes;
  }
  return records;
}

Status restore(Bytes body, const std::function<Status(std::uint64_t, Bytes)>& write) {
  ByteReader reader(body);
  std::uint64_t at = reader.varint();
  while (reader.ok() && reader.remaining() > 0) {
    at += reader.varint();
    const Bytes old = reader.bytes(reader.varint());
    if (!reader.ok()) break;
    WC_TRY(write(at, old));
    at += old.size();
  }
  if (!reader.ok())
    return fail(Errc::kCorrupt, Op::kParse, "undo journal: a record is malformed; fetch the data whole");
  return {};
}

}  // namespace

struct UndoJournal::Opened {
  FileSystem& files;
  std::string path;
  std::unique_ptr<File> file;
  std::mutex mutex;  // guards what follows
  std::uint64_t end = 0;
};

UndoJournal::UndoJournal(std::unique_ptr<Opened> opened) : opened_(std::move(opened)) {}
UndoJournal::UndoJournal(UndoJournal&&) noexcept = default;
UndoJournal& UndoJournal::operator=(UndoJournal&&) noexcept = default;
UndoJournal::~UndoJournal() = default;

Result<UndoJournal> UndoJournal::create(FileSystem& files, const std::string& path) {
  WC_ASSIGN(std::unique_ptr<File> file, files.open(path, {.write = true, .create = Create::kNew, .permissions = 0600}));
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  writer.fixed(kFileMagic);
  writer.fixed(std::uint32_t{0});
  writer.digest(checksum_of(bytes));
  WC_TRY(write_fully(*file, 0, bytes, path));
  // At once: by its first bytes, and by its name, it is known that there is nothing else to put back.
  WC_TRY(file->sync_data());
  WC_TRY(sync_directory(files, std::filesystem::path(path).parent_path()));
  return UndoJournal(std::unique_ptr<Opened>(new Opened{files, path, std::move(file), {}, bytes.size()}));
}

Status UndoJournal::record(std::uint64_t offset, unsigned cell_bytes, std::span<const std::uint32_t> cells,
                           Bytes old_values) {
  WC_CHECK(old_values.size() == cells.size() * cell_bytes);
  if (cells.empty()) return {};
  WC_CHECK((std::uint64_t{cells.back()} + 1) * cell_bytes <= kSegmentBytesMax);
  const std::vector<std::byte> body = make_body(offset, cell_bytes, cells, old_values);
  std::vector<std::byte> record;
  record.reserve(kRecordPrefixBytes + body.size());
  ByteWriter writer(record);
  writer.fixed(kRecordMagic);
  writer.fixed(std::uint64_t{body.size()});
  writer.digest(record_digest(record, body));
  writer.bytes(body);
  const std::lock_guard lock(opened_->mutex);
  if (Status written = write_fully(*opened_->file, opened_->end, record, opened_->path); !written) {
    // A torn record would hide those that follow it.
    WC_TRY(opened_->file->truncate(opened_->end));
    return written;
  }
  opened_->end += record.size();
  return {};
}

Status UndoJournal::sync() { return opened_->file->sync_data(); }

Result<std::size_t> recover(FileSystem& files, const std::string& path,
                            const std::function<Status(std::uint64_t, Bytes)>& write,
                            const std::function<Status()>& sync) {
  WC_ASSIGN(const std::unique_ptr<File> file, files.open(path, {}));
  WC_ASSIGN(const Records records, scan(*file, path));
  std::vector<std::byte> body;
  for (auto at = records.rbegin(); at != records.rend(); ++at) {
    body.resize(std::size_t(at->second));
    WC_TRY(read_fully(*file, at->first, body, path));
    WC_TRY(restore(body, write));
  }
  WC_TRY(sync());
  WC_TRY(remove_journal(files, path));
  return records.size();
}

}  // namespace weightcast
