#include "transport/node/payload/archive_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/digest/content_digest.h"
#include "transport/io/buffer.h"

namespace weightcast {
namespace {

// So long a thread that waits for its turn does not notice that it is not wanted any more.
constexpr Duration kTurnMax = std::chrono::milliseconds(100);

Error ended_error() { return fail(Errc::kClosed, Op::kReceive, "it is not wanted any more"); }

}  // namespace

void ArchiveReader::Pace::set(Rate rate) {
  const std::lock_guard lock(mutex_);
  if (rate != limiter_.rate()) limiter_ = RateLimiter(rate);
}

Status ArchiveReader::Pace::pass(const EventLoop& loop, std::size_t bytes, const std::atomic<bool>& ended) {
  std::unique_lock lock(mutex_);
  while (bytes > 0) {
    if (stopped_ || ended) return ended_error();
    const Instant now = loop.now();
    const std::size_t passes = std::min(bytes, limiter_.available(now));
    limiter_.consume(now, passes);
    bytes -= passes;
    if (bytes == 0) break;
    const Duration wait = limiter_.ready_at(now, bytes) - now;
    stopped_changed_.wait_for(lock, std::clamp<Duration>(wait, std::chrono::microseconds(100), kTurnMax));
  }
  return {};
}

void ArchiveReader::Pace::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stopped_changed_.notify_all();
}

ArchiveReader::ArchiveReader(EventLoop& loop, std::unique_ptr<PayloadArchive> archive, unsigned threads,
                             Handlers handlers)
    : loop_(loop), archive_(std::move(archive)), handlers_(std::move(handlers)), threads_(loop, threads) {}

ArchiveReader::~ArchiveReader() {
  for (const auto& [request, ended] : requests_) *ended = true;
  pace_.stop();
  archive_->stop();
}

ArchiveReader::Ended ArchiveReader::begin(std::uint32_t request) {
  return requests_.emplace(request, std::make_shared<std::atomic<bool>>(false)).first->second;
}

void ArchiveReader::end(std::uint32_t request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return;
  *found->second = true;
  requests_.erase(found);
}

void ArchiveReader::post(const Ended& ended, std::function<void()> answer) {
  loop_.post([ended, answer = std::move(answer)] {
    if (!*ended) answer();
  });
}

void ArchiveReader::find(const action::FindArchived& find) {
  const Ended ended = begin(find.request);
  auto found = std::make_shared<Result<std::vector<ContentDigest>>>(ended_error());
  threads_.run(
      [this, ended, found, manifest = find.manifest] {
        if (!*ended) *found = archive_->find(*manifest);
      },
      [this, ended, found, request = find.request, payload = find.manifest->id()] {
        if (*ended) return;
        requests_.erase(request);
        handlers_.on_found(payload, request, std::move(*found));
      });
}

void ArchiveReader::read(const action::ReadArchived& read) {
  pace_.set(read.rate);
  const Ended ended = begin(read.request);
  auto status = std::make_shared<Status>(ended_error());
  threads_.run(
      [this, ended, status, read] {
        if (!*ended) *status = read_chunks(read, ended);
      },
      [this, ended, status, request = read.request, payload = read.manifest->id()] {
        if (*ended) return;
        requests_.erase(request);
        handlers_.on_ended(payload, request, *status);
      });
}

Status ArchiveReader::read_chunks(const action::ReadArchived& read, const Ended& ended) {
  const Manifest& manifest = *read.manifest;
  ChunkIndex chunk = read.first;
  const ChunkIndex end{read.first.value + read.chunks};
  const std::uint64_t begin_byte = manifest.chunk_offset(chunk);
  const std::uint64_t end_byte = std::min(manifest.payload_bytes, manifest.chunk_offset(end));
  BufferRef buffer;
  std::size_t filled = 0;
  const Status all = archive_->read(manifest, begin_byte, end_byte - begin_byte, [&](Bytes bytes) -> Status {
    while (!bytes.empty()) {
      if (chunk == end) return fail(Errc::kCorrupt, Op::kReceive, "it sends more than was asked for");
      const std::size_t size = manifest.chunk_size(chunk);
      if (!buffer) {
        buffer = std::make_shared<Buffer>(size);
        buffer->set_size(size);
      }
      const std::size_t taken = std::min(bytes.size(), size - filled);
      WC_TRY(pace_.pass(loop_, taken, *ended));
      std::memcpy(buffer->data() + filled, bytes.data(), taken);
      bytes = bytes.subspan(taken);
      filled += taken;
      if (filled < size) break;
      ChunkArrival arrival{manifest.id(), chunk, static_cast<std::uint32_t>(size), content_digest_of(buffer->bytes()),
                           std::exchange(buffer, nullptr)};
      post(ended,
           [this, request = read.request, arrival = std::move(arrival)] { handlers_.on_chunk(request, arrival); });
      filled = 0;
      ++chunk.value;
    }
    return {};
  });
  WC_TRY(all);
  if (chunk != end) return fail(Errc::kCorrupt, Op::kReceive, "it sends less than was asked for");
  return {};
}

}  // namespace weightcast
