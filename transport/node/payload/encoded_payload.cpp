#include "transport/node/payload/encoded_payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/units.h"

namespace weightcast {
namespace {

// Workers hear of it each time, so neither for every few chunks nor so late that they would wait for it.
constexpr std::uint64_t kPartBytes = 32 * kKiB;
// A manifest carries a digest of 16 bytes for each: so many if the payload becomes as long as is expected, and so many
// at the most.
constexpr std::uint64_t kPartsExpected = 2048;
constexpr std::uint64_t kPartsMax = 16384;
constexpr std::chrono::milliseconds kGrowthInterval{10};

}  // namespace

PayloadSource::Announcement announce_encoded(Manifest manifest, const EncodedSize& size,
                                             const std::function<std::uint32_t(std::uint64_t)>& choose_chunk_bytes,
                                             ManifestAuthor author) {
  manifest.open = true;
  manifest.expected_bytes = std::max<std::uint64_t>(1, size.expected_bytes);
  manifest.payload_bytes = 0;
  manifest.part_digests.clear();
  manifest.chunk_bytes = choose_chunk_bytes(manifest.expected_bytes);
  const auto part_bytes = std::max({kPartBytes, manifest.expected_bytes / kPartsExpected, size.bytes_max / kPartsMax});
  manifest.part_chunks = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((part_bytes - 1) / manifest.chunk_bytes + 1, 1, kDigestsPerPart));
  return {std::move(manifest), kPackedShareOfWeights, {.interval_min = kGrowthInterval}, std::move(author)};
}

Result<EncodedFile> EncodedFile::open(Jobs& jobs, FileSystem& files, std::filesystem::path path,
                                      std::uint32_t chunk_bytes, std::uint64_t bytes_limit,
                                      const PayloadSource::Report& report) {
  WC_ASSIGN(std::unique_ptr<File> file, files.open(path, {.write = true}));
  return EncodedFile(jobs, std::move(file), std::move(path), chunk_bytes, bytes_limit, report);
}

EncodedFile::EncodedFile(Jobs& jobs, std::unique_ptr<File> file, std::filesystem::path path, std::uint32_t chunk_bytes,
                         std::uint64_t bytes_limit, const PayloadSource::Report& report)
    : jobs_(jobs),
      file_(std::move(file)),
      path_(std::move(path)),
      chunk_bytes_(chunk_bytes),
      bytes_limit_(bytes_limit),
      report_(report),
      hasher_(chunk_bytes) {}

Status EncodedFile::write(Bytes bytes) {
  if (jobs_.cancelled()) return Jobs::cancelled_error(Op::kEncode);
  if (bytes_ + bytes.size() >= bytes_limit_) {
    return fail(Errc::kTooLarge, Op::kEncode,
                fmt::format("it takes more than {}, so it is not worth it", format_bytes(bytes_limit_)));
  }
  WC_TRY(write_fully(*file_, bytes_, bytes, path_.native()));
  bytes_ += bytes.size();
  hasher_.update(bytes);
  report_new();
  return {};
}

void EncodedFile::finish() {
  hasher_.finish();
  report_new();
}

void EncodedFile::report_new() {
  const std::span<const ContentDigest> fresh = std::span(hasher_.digests()).subspan(reported_);
  if (fresh.empty()) return;
  const std::uint64_t begin = std::uint64_t{reported_} * chunk_bytes_;
  report_(reported_, fresh, std::min<std::uint64_t>(bytes_ - begin, fresh.size() * chunk_bytes_));
  reported_ += static_cast<std::uint32_t>(fresh.size());
}

}  // namespace weightcast
