#include "worker/learner/spool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/digest/checksum.h"
#include "base/text.h"
#include "trainer/tasks/run_description.h"

namespace weightcast {
namespace {

// Numbers that a restart may skip: one write to the disk for so many.
constexpr std::uint64_t kNumbersReserved = 4096;
constexpr std::size_t kHeadBytes = 20;
constexpr std::string_view kLogEnd = ".log";
constexpr std::uint64_t kLogNumberEnd = 1'000'000'000'000;  // twelve digits

// Numbers beyond are damage: this many a second would take 10,000 years.
constexpr std::uint64_t kNumberMax = std::uint64_t{1} << 62;
// More than one record beyond a log's usual size is in none that a worker has written.
constexpr std::uint64_t kLogBytesMax = Spool::kFileBytes + Spool::kRecordBytesMax + kHeadBytes;
constexpr std::size_t kReadBytes = std::size_t{256} << 10;

std::array<std::byte, kHeadBytes> head_of(std::uint32_t size, const Checksum& sum) {
  std::array<std::byte, kHeadBytes> head{};
  static_assert(sizeof sum.bytes == kHeadBytes - sizeof size);
  std::memcpy(head.data(), &size, sizeof size);
  std::memcpy(head.data() + sizeof size, sum.bytes.data(), sum.bytes.size());
  return head;
}

std::array<std::byte, kHeadBytes> head_of(std::string_view payload) {
  return head_of(static_cast<std::uint32_t>(payload.size()), checksum_of(std::as_bytes(std::span(payload))));
}

std::string log_name(std::uint64_t number) { return fmt::format("{:012}{}", number, kLogEnd); }

/// Absent if it is no name that log_name() gives.
std::optional<std::uint64_t> log_number(std::string_view name) {
  const auto number = parse_number<std::uint64_t>(name.substr(0, name.find(kLogEnd)));
  const bool is_one = number && *number > 0 && *number < kLogNumberEnd && log_name(*number) == name;
  return is_one ? number : std::nullopt;
}

/// Deletes a run's logs, and the directory if it held nothing else.
Status remove_run(FileSystem& files, const std::filesystem::path& directory) {
  WC_ASSIGN(const std::vector<std::string> names, files.list(directory));
  for (const std::string& name : names) {
    if (log_number(name)) WC_TRY(remove_if_there(files, directory / name));
  }
  const bool has_others = std::ranges::any_of(names, [](const std::string& name) { return !log_number(name); });
  return has_others ? Status() : files.remove_directory(directory);
}

Result<std::uint64_t> number_in(std::string_view text, std::string_view what) {
  const auto number = parse_number<std::uint64_t>(text.substr(0, text.find('\n')));
  if (number && *number <= kNumberMax) return *number;
  return fail(
      Errc::kCorrupt, Op::kRead,
      fmt::format("{}: it holds no number; delete it only together with the worker's name, or numbers repeat", what));
}

/// Of a file's bytes, which a header that says so does not bring into memory at once.
Result<Checksum> checksum_in(File& file, std::uint64_t offset, std::uint64_t size_bytes, std::string_view path) {
  ChecksumStream sum;
  std::vector<std::byte> piece(std::min<std::uint64_t>(size_bytes, kReadBytes));
  for (std::uint64_t done = 0; done < size_bytes; done += piece.size()) {
    piece.resize(std::min<std::uint64_t>(size_bytes - done, kReadBytes));
    WC_TRY(read_fully(file, offset + done, piece, path));
    sum.update(piece);
  }
  return sum.digest();
}

}  // namespace

Result<Spool> Spool::open(FileSystem& files, std::filesystem::path directory) {
  WC_TRY(make_directories(files, directory));
  Spool spool(files, std::move(directory));
  WC_ASSIGN(spool.lock_, files.open(spool.directory_ / "lock", {.write = true, .create = Create::kIfMissing}));
  if (Status locked = spool.lock_->lock(); !locked.has_value()) {
    if (locked.error().code != Errc::kBusy) return std::move(locked).error();
    return fail(Errc::kBusy, Op::kLock, fmt::format("{}: another process is using it", spool.directory_.native()));
  }
  const std::filesystem::path numbers = spool.directory_ / "sequence";
  if (exists(files, numbers)) {
    WC_ASSIGN(const std::string text, read_file(files, numbers, 64));
    WC_ASSIGN(spool.next_number_, number_in(text, numbers.native()));
    spool.reserved_to_ = spool.next_number_;
  }
  std::vector<std::string> runs;
  WC_ASSIGN(const std::vector<std::string> names, files.list(spool.directory_));
  for (const std::string& name : names) {
    WC_ASSIGN(const FileInfo info, files.link_info(spool.directory_ / name));
    if (info.is_directory() && is_run_id(name)) runs.push_back(name);
  }
  if (runs.size() == 1) WC_TRY(spool.load_run(runs.front()));
  return spool;
}

Result<std::uint64_t> Spool::take_numbers(std::uint64_t count) {
  if (next_number_ + count > reserved_to_) {
    const std::uint64_t to = next_number_ + std::max(count, kNumbersReserved);
    WC_TRY(replace_file(*files_, directory_ / "sequence", fmt::format("{}\n", to), Synced::kBytesAndName));
    reserved_to_ = to;
  }
  next_number_ += count;
  return next_number_ - count;
}

std::filesystem::path Spool::path_of(std::uint64_t log) const { return directory_ / run_ / log_name(log); }

Status Spool::set_run(const std::string& run) {
  if (!is_run_id(run)) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("'{}' is no id of a run", printable(run)));
  }
  if (run != run_) WC_TRY(load_run(run));
  WC_ASSIGN(const std::vector<std::string> names, files_->list(directory_));
  for (const std::string& name : names) {
    // Whoever names the wrong directory for a spool loses nothing but logs.
    if (name == run || !is_run_id(name)) continue;
    WC_ASSIGN(const FileInfo info, files_->link_info(directory_ / name));
    if (info.is_directory()) WC_TRY(remove_run(*files_, directory_ / name));
  }
  return {};
}

Status Spool::load_run(const std::string& run) {
  run_ = run;
  logs_.clear();
  records_.clear();
  current_ = last_log_ = 0;
  WC_TRY(make_directories(*files_, directory_ / run));
  WC_ASSIGN(const std::vector<std::string> names, files_->list(directory_ / run));
  for (const std::string& name : names) {
    if (const auto number = log_number(name)) WC_TRY(load_log(*number));
  }
  return {};
}

Status Spool::load_log(std::uint64_t number) {
  last_log_ = std::max(last_log_, number);
  Log log;
  WC_ASSIGN(log.file, files_->open(path_of(number), {}));
  WC_ASSIGN(const FileInfo info, log.file->info());
  log.size_bytes = info.size_bytes;
  const std::string path = path_of(number);
  if (info.size_bytes > kLogBytesMax) {
    return fail(Errc::kTooLarge, Op::kRead,
                fmt::format("{}: it has {} bytes, and a log of rollouts at most {}; move it away", path,
                            info.size_bytes, kLogBytesMax));
  }
  for (std::uint64_t at = 0; at + kHeadBytes <= info.size_bytes;) {
    std::array<std::byte, kHeadBytes> head;
    WC_TRY(read_fully(*log.file, at, head, path));
    std::uint32_t size = 0;
    std::memcpy(&size, head.data(), sizeof size);
    if (size > kRecordBytesMax || size > info.size_bytes - at - kHeadBytes) break;
    WC_ASSIGN(const Checksum sum, checksum_in(*log.file, at + kHeadBytes, size, path));
    // Behind what a kill or a power cut has torn nothing else was written.
    if (head_of(size, sum) != head) break;
    records_.emplace(next_id_++, Record{number, at + kHeadBytes, size});
    ++log.records;
    at += kHeadBytes + size;
  }
  if (log.records == 0) return files_->remove(path_of(number));
  logs_.emplace(number, std::move(log));
  return {};
}

std::vector<Spool::Id> Spool::records() const {
  std::vector<Id> ids;
  for (const auto& [id, record] : records_) ids.push_back(id);
  return ids;
}

Status Spool::begin_log() {
  Log log;
  const std::uint64_t number = last_log_ + 1;
  WC_ASSIGN(log.file, files_->open(path_of(number), {.write = true, .create = Create::kNew}));
  last_log_ = number;
  const std::uint64_t before = std::exchange(current_, number);
  logs_.emplace(number, std::move(log));
  if (before != 0 && logs_.at(before).records == 0) {
    logs_.erase(before);
    return remove_if_there(*files_, path_of(before));
  }
  return {};
}

Result<Spool::Id> Spool::add(std::string_view payload) {
  WC_CHECK(!run_.empty());
  if (payload.size() > kRecordBytesMax) {
    return fail(Errc::kTooLarge, Op::kWrite, fmt::format("a rollout of {} bytes", payload.size()));
  }
  if (current_ == 0 || logs_.at(current_).size_bytes >= kFileBytes) WC_TRY(begin_log());
  Log& log = logs_.at(current_);
  const auto head = head_of(payload);
  std::string bytes(reinterpret_cast<const char*>(head.data()), head.size());
  bytes += payload;
  if (Status written = write_fully(*log.file, log.size_bytes, std::as_bytes(std::span(bytes)), "a rollout log");
      !written.has_value()) {
    // What was written of it is torn, so that nothing may follow it.
    current_ = 0;
    if (log.records == 0) {
      const std::uint64_t number = last_log_;
      logs_.erase(number);
      static_cast<void>(remove_if_there(*files_, path_of(number)));
    }
    return std::move(written).error();
  }
  const Record record{current_, log.size_bytes + kHeadBytes, payload.size()};
  log.size_bytes += bytes.size();
  ++log.records;
  records_.emplace(next_id_, record);
  return next_id_++;
}

Spool::Place Spool::place_of(Id id) const {
  const Record& record = records_.at(id);
  return {logs_.at(record.log).file, record.offset, record.bytes};
}

Result<std::string> Spool::read(const Place& place) {
  std::string payload(place.bytes, '\0');
  std::array<std::byte, kHeadBytes> head;
  WC_TRY(read_fully(*place.file, place.offset - kHeadBytes, head, "a rollout log"));
  WC_TRY(read_fully(*place.file, place.offset, std::as_writable_bytes(std::span(payload)), "a rollout log"));
  if (head_of(payload) == head) return payload;
  return fail(Errc::kCorrupt, Op::kRead, "a rollout log: a record's bytes have changed on the disk");
}

Status Spool::remove(Id id) {
  const auto found = records_.find(id);
  if (found == records_.end()) return {};
  const std::uint64_t number = found->second.log;
  records_.erase(found);
  Log& log = logs_.at(number);
  if (--log.records > 0 || number == current_) return {};
  logs_.erase(number);
  return remove_if_there(*files_, path_of(number));
}

}  // namespace weightcast
