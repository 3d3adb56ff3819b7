#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "transport/io/jobs.h"
#include "transport/node/payload/chunk_hasher.h"
#include "transport/node/payload/payload_producer.h"

namespace weightcast {

/// What an encoded payload is expected to take, and what it takes at the most.
struct EncodedSize {
  std::uint64_t expected_bytes = 0;
  std::uint64_t bytes_max = 0;
};

/// The announcement of a patch or packed payload that is sent while it is encoded. `manifest` says of what version,
/// kind and base, with the result's digest; what it says of length and parts is replaced. `choose_chunk_bytes` is given
/// the expected size.
[[nodiscard]] PayloadSource::Announcement announce_encoded(
    Manifest manifest, const EncodedSize& size, const std::function<std::uint32_t(std::uint64_t)>& choose_chunk_bytes,
    ManifestAuthor author);

/// Takes the bytes of such a payload as they are encoded: writes them to the store's file and reports the chunks that
/// are whole. One thread at a time.
class EncodedFile {
 public:
  /// `path` is what begin_patch() made; the payload has fewer than `bytes_limit`. All outlive it. Errors: kIo.
  [[nodiscard]] static Result<EncodedFile> open(Jobs& jobs, FileSystem& files, std::filesystem::path path,
                                                std::uint32_t chunk_bytes, std::uint64_t bytes_limit,
                                                const PayloadSource::Report& report);

  /// Errors: kClosed (the node stops), kTooLarge, kNoSpace, kIo.
  [[nodiscard]] Status write(Bytes bytes);
  /// After the last write().
  void finish();

 private:
  EncodedFile(Jobs& jobs, std::unique_ptr<File> file, std::filesystem::path path, std::uint32_t chunk_bytes,
              std::uint64_t bytes_limit, const PayloadSource::Report& report);
  void report_new();

  Jobs& jobs_;
  std::unique_ptr<File> file_;
  std::filesystem::path path_;
  std::uint32_t chunk_bytes_;
  std::uint64_t bytes_limit_;
  const PayloadSource::Report& report_;
  ChunkHasher hasher_;
  std::uint64_t bytes_ = 0;     // written
  std::uint32_t reported_ = 0;  // chunks
};

}  // namespace weightcast
