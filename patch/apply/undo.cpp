#include "patch/apply/undo.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "patch/codec/byte_io.h"
#include "patch/snapshot/write_file.h"

namespace weightcast {
namespace {

// File: magic, length of the tag, tag, digest of all that. Then records: magic, length of the body, digest of both and
// of the body, body. Body: offset, then runs of (bytes to skip, bytes to write, bytes), all numbers LEB128.
constexpr std::uint64_t kFileMagic = 0x01'4f'44'4e'55'43'57'00;  // "\0WCUNDO" and the format's version
constexpr std::uint32_t kRecordMagic = 0x4f444e57;               // "WNDO"
constexpr std::size_t kTagBytesMax = 4096;
constexpr std::size_t kRecordPrefixBytes = 4 + 8 + Digest::kBytes;
// Runs closer than this are joined: a run costs two numbers.
constexpr std::size_t kJoinBytes = 4;

Digest record_digest(Bytes fields, Bytes body) {
  DigestStream digest;
  digest.update(fields);
  digest.update(body);
  return digest.digest();
}

std::size_t first_difference(Bytes a, Bytes b, std::size_t from) {
  // By words: where one cell in a hundred changes, the next difference is too near for memcmp() to pay.
  static_assert(std::endian::native == std::endian::little);
  for (std::uint64_t x, y; from + sizeof x <= a.size(); from += sizeof x) {
    std::memcpy(&x, a.data() + from, sizeof x);
    std::memcpy(&y, b.data() + from, sizeof y);
    if (x != y) return from + std::size_t(std::countr_zero(x ^ y)) / 8;
  }
  while (from < a.size() && a[from] == b[from]) ++from;
  return from;
}

/// Empty where nothing differs.
std::vector<std::byte> make_body(std::uint64_t offset, Bytes before, Bytes after) {
  std::vector<std::byte> body;
  ByteWriter writer(body);
  writer.varint(offset);
  std::size_t done = 0, begin = first_difference(before, after, 0);
  if (begin == before.size()) return {};
  while (begin < before.size()) {
    std::size_t end = begin + 1, next = end;
    for (; next < before.size() && next - end < kJoinBytes; ++next) {
      if (before[next] != after[next]) end = next + 1;
    }
    writer.varint(begin - done);
    writer.varint(end - begin);
    writer.bytes(before.subspan(begin, end - begin));
    done = end;
    begin = first_difference(before, after, end);
  }
  return body;
}

Status remove_journal(const std::string& path) {
  if (::unlink(path.c_str()) != 0) return fail_errno(errno, Op::kWrite, path);
  return sync_folder(std::filesystem::path(path).parent_path());
}

/// Positions of the whole records' bodies, in order.
struct Records {
  std::string tag;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> bodies;  // offset in the file, length
};

Status read_exactly(int fd, const std::string& path, std::uint64_t offset, MutableBytes out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, Op::kRead, path);
    if (got == 0) return fail(Errc::kCorrupt, Op::kRead, path + ": it ends early");
    offset += std::uint64_t(got);
    out = out.subspan(std::size_t(got));
  }
  return {};
}

Result<Records> scan(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno(errno, Op::kRead, path);
  const auto size = std::uint64_t(info.st_size);
  const auto damaged = [&] {
    return fail(
        Errc::kCorrupt, Op::kParse,
        path + ": it does not begin as an undo journal; the data it belongs to cannot be trusted, fetch it whole");
  };
  Records records;
  std::vector<std::byte> bytes(std::min<std::uint64_t>(size, 8 + 4 + kTagBytesMax + Digest::kBytes));
  WC_TRY(read_exactly(fd, path, 0, bytes));
  ByteReader reader(bytes);
  const auto magic = reader.fixed<std::uint64_t>();
  const auto tag_bytes = reader.fixed<std::uint32_t>();
  if (!reader.ok()) return records;  // cut short while it was made: nothing was overwritten yet
  if (magic != kFileMagic || tag_bytes > kTagBytesMax) return damaged();
  const Bytes tag = reader.bytes(tag_bytes);
  const std::size_t fields_bytes = reader.position();
  const Digest digest = reader.digest();
  if (!reader.ok()) return records;  // as above
  if (digest != digest_of(Bytes(bytes).first(fields_bytes))) return damaged();
  records.tag.assign(reinterpret_cast<const char*>(tag.data()), tag.size());

  std::vector<std::byte> body;
  for (std::uint64_t at = reader.position(); at + kRecordPrefixBytes <= size;) {
    std::array<std::byte, kRecordPrefixBytes> prefix;
    WC_TRY(read_exactly(fd, path, at, prefix));
    ByteReader fields(prefix);
    const auto record_magic = fields.fixed<std::uint32_t>();
    const auto body_bytes = fields.fixed<std::uint64_t>();
    const std::uint64_t body_at = at + kRecordPrefixBytes;
    if (record_magic != kRecordMagic || body_bytes > size - body_at) break;
    body.resize(std::size_t(body_bytes));
    WC_TRY(read_exactly(fd, path, body_at, body));
    if (fields.digest() != record_digest(Bytes(prefix).first(12), body)) break;
    records.bodies.emplace_back(body_at, body_bytes);
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

struct UndoJournal::File {
  std::string path;
  int fd = -1;
  std::uint64_t end = 0;
  ~File() { ::close(fd); }
};

UndoJournal::UndoJournal(std::unique_ptr<File> file) : file_(std::move(file)) {}
UndoJournal::UndoJournal(UndoJournal&&) noexcept = default;
UndoJournal& UndoJournal::operator=(UndoJournal&&) noexcept = default;
UndoJournal::~UndoJournal() = default;

Result<UndoJournal> UndoJournal::create(const std::string& path, std::string_view tag) {
  WC_CHECK(tag.size() <= kTagBytesMax);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return fail_errno(errno, Op::kOpen, path);
  auto file = std::make_unique<File>();
  file->path = path;
  file->fd = fd;
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  writer.fixed(kFileMagic);
  writer.fixed(std::uint32_t(tag.size()));
  writer.bytes(std::as_bytes(std::span(tag.data(), tag.size())));
  writer.digest(digest_of(bytes));
  WC_TRY(write_all(fd, path, bytes));
  file->end = bytes.size();
  // At once: by its first bytes, and by its name, it is known that there is nothing else to put back.
  UndoJournal journal(std::move(file));
  WC_TRY(journal.sync());
  WC_TRY(sync_folder(std::filesystem::path(path).parent_path()));
  return journal;
}

Status UndoJournal::record(std::uint64_t offset, Bytes before, Bytes after) {
  WC_CHECK(before.size() == after.size());
  const std::vector<std::byte> body = make_body(offset, before, after);
  if (body.empty()) return {};
  std::vector<std::byte> record;
  record.reserve(kRecordPrefixBytes + body.size());
  ByteWriter writer(record);
  writer.fixed(kRecordMagic);
  writer.fixed(std::uint64_t{body.size()});
  writer.digest(record_digest(record, body));
  writer.bytes(body);
  if (Status written = write_all(file_->fd, file_->path, record); !written) {
    // A torn record would hide those that follow it.
    if (::ftruncate(file_->fd, off_t(file_->end)) != 0 || ::lseek(file_->fd, off_t(file_->end), SEEK_SET) < 0) {
      return fail_errno(errno, Op::kWrite, file_->path);
    }
    return written;
  }
  file_->end += record.size();
  return {};
}

Status UndoJournal::sync() {
  if (::fdatasync(file_->fd) != 0) return fail_errno(errno, Op::kSync, file_->path);
  return {};
}

Result<Recovered> recover(const std::string& path, const std::function<Status(std::uint64_t, Bytes)>& write,
                          const std::function<Status()>& sync) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno(errno, Op::kOpen, path);
  const std::unique_ptr<const int, void (*)(const int*)> closer(&fd, [](const int* open) { ::close(*open); });
  WC_ASSIGN(const Records records, scan(fd, path));
  std::vector<std::byte> body;
  for (auto at = records.bodies.rbegin(); at != records.bodies.rend(); ++at) {
    body.resize(std::size_t(at->second));
    WC_TRY(read_exactly(fd, path, at->first, body));
    WC_TRY(restore(body, write));
  }
  WC_TRY(sync());
  WC_TRY(remove_journal(path));
  return Recovered{records.tag, records.bodies.size()};
}

}  // namespace weightcast
