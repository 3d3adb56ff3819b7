#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast::bench {

/// A temporary directory, which the destructor removes with all its contents. It is made under TMPDIR, else under
/// /var/tmp, because /tmp may be memory.
class Scratch {
 public:
  /// Errors: kIo, kNotFound, kNoSpace.
  [[nodiscard]] static Result<Scratch> make();
  Scratch(Scratch&& other) noexcept;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();

  [[nodiscard]] std::filesystem::path path() const { return path_; }

 private:
  explicit Scratch(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

/// What the BF16 numbers of a payload are.
enum class Content : std::uint8_t {
  kRandom,  ///< finite, and else any bits: nothing can make them smaller
  kWeights  ///< normal with a standard deviation of 0.02, as a trained model's are
};
/// Errors: kInvalidArgument, listing the names.
[[nodiscard]] Result<Content> parse_content(std::string_view text);

/// A snapshot to publish: a safetensors file of exactly `bytes`, whose numbers depend on the seed.
struct Payload {
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  Checksum digest{};
};

/// Writes a payload of that layout. `next` gives its tensors' bytes piece by piece, as long as some are missing; the
/// last piece may be longer. Errors: kNoSpace, kIo.
[[nodiscard]] Result<Payload> write_payload(const std::filesystem::path& path, const SafetensorsLayout& layout,
                                            const std::function<Bytes()>& next);

/// Errors: kInvalidArgument (fewer than 4 KiB); those of write_payload().
[[nodiscard]] Result<Payload> make_payload(const std::filesystem::path& path, std::uint64_t bytes, std::uint64_t seed,
                                           Content content = Content::kRandom);

/// Checks that the snapshot that a node has installed equals the payload. Errors: kCorrupt (it differs), kNotFound.
[[nodiscard]] Status check_installed(const std::filesystem::path& state, const Payload& payload);

}  // namespace weightcast::bench
