#include "bench/fleet/scratch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/files/posix_file_system.h"
#include "base/random.h"
#include "base/units.h"
#include "bench/codec/trace.h"
#include "patch/snapshot/write_file.h"

namespace weightcast::bench {
namespace {

// Without the highest bit of its exponent a BF16 number is finite.
constexpr std::uint64_t kFiniteBf16 = 0xbfff'bfff'bfff'bfff;

constexpr float kWeightSd = 0.02f;

/// The next cells of a tensor, from cell `first` on.
void fill(Content content, std::uint64_t seed, std::uint64_t first, std::span<std::uint16_t> cells, Random& random) {
  if (content == Content::kWeights) {
    for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = to_bf16(kWeightSd * normal_draw(seed, first + i));
    return;
  }
  for (std::size_t i = 0; i < cells.size(); i += 4) {
    const std::uint64_t four = random.next() & kFiniteBf16;
    std::memcpy(&cells[i], &four, sizeof four);
  }
}

}  // namespace

Result<Scratch> Scratch::make() {
  const char* from_environment = std::getenv("TMPDIR");
  std::string path = from_environment != nullptr ? from_environment : "/var/tmp";
  path += "/weightcast-bench.XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return fail_errno(errno, Op::kOpen, path);
  return Scratch(path);
}

Scratch::Scratch(Scratch&& other) noexcept : path_(std::exchange(other.path_, {})) {}

Scratch::~Scratch() {
  std::error_code ignored;
  if (path_.empty()) return;
  // Daemons have kept versions in memory elsewhere: DIR/memory leads there.
  for (std::filesystem::recursive_directory_iterator entry(path_, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    if (!entry->is_symlink(ignored) || entry->path().filename() != "memory") continue;
    const std::filesystem::path memory = std::filesystem::read_symlink(entry->path(), ignored);
    if (!ignored) std::filesystem::remove_all(memory, ignored);
  }
  std::filesystem::remove_all(path_, ignored);
}

Result<Content> parse_content(std::string_view text) {
  if (text == "random") return Content::kRandom;
  if (text == "weights") return Content::kWeights;
  return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("content '{}': random or weights", text));
}

Result<Payload> write_payload(const std::filesystem::path& path, const SafetensorsLayout& layout,
                              const std::function<Bytes()>& next) {
  PosixFileSystem files;
  WC_ASSIGN(const std::unique_ptr<File> file, files.open(path, {.write = true, .create = Create::kEmpty}));
  FileWriter out(*file, path.native());
  ChecksumStream digest;
  const auto append = [&](Bytes piece) {
    digest.update(piece);
    return out.write(piece);
  };
  WC_TRY(append(std::as_bytes(std::span(layout.header))));
  for (std::uint64_t left = layout.file_bytes - layout.header.size(); left > 0;) {
    const Bytes piece = next();
    const std::uint64_t size = std::min<std::uint64_t>(left, piece.size());
    WC_TRY(append(piece.first(size)));
    left -= size;
  }
  return Payload{path, layout.file_bytes, digest.digest()};
}

Result<Payload> make_payload(const std::filesystem::path& path, std::uint64_t bytes, std::uint64_t seed,
                             Content content) {
  constexpr std::uint64_t kBytesMin = 4 * kKiB;
  if (bytes < kBytesMin || bytes % 2 != 0) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("a payload of {} bytes: it must be even and at least {}", bytes, kBytesMin));
  }
  // The header's length depends on the number of elements, and the other way round; a little metadata fills the gap.
  TensorInfo tensor;
  tensor.name = "weight";
  tensor.dtype = "BF16";
  tensor.size_bytes = bytes - kKiB;
  tensor.shape = {tensor.size_bytes / 2};
  SafetensorsMetadata metadata{{"fill", ""}};
  WC_ASSIGN(SafetensorsLayout layout, lay_out_safetensors(std::span(&tensor, 1), metadata));
  metadata["fill"] = std::string(bytes - layout.file_bytes, '-');
  WC_ASSIGN(layout, lay_out_safetensors(std::span(&tensor, 1), metadata));
  WC_CHECK(layout.file_bytes == bytes);

  Random random(seed);
  std::vector<std::uint16_t> block(512 * kKiB);
  std::uint64_t cells = 0;
  return write_payload(path, layout, [&] {
    fill(content, seed, cells, block, random);
    cells += block.size();
    return std::as_bytes(std::span(block));
  });
}

Status check_installed(const std::filesystem::path& state, const Payload& payload) {
  const std::filesystem::path path = state / "current" / "model.safetensors";
  PosixFileSystem files;
  WC_ASSIGN(const std::unique_ptr<File> file, files.open(path, {}));
  ChecksumStream digest;
  std::uint64_t bytes = 0;
  std::vector<std::byte> block(kMiB);
  for (;;) {
    WC_ASSIGN(const std::size_t n, file->read_at(bytes, block));
    if (n == 0) break;
    digest.update(Bytes(block).first(n));
    bytes += n;
  }
  if (bytes == payload.bytes && digest.digest() == payload.digest) return {};
  return fail(
      Errc::kCorrupt, Op::kVerify,
      fmt::format("{}: {} bytes that are not the {} bytes which were published", path.string(), bytes, payload.bytes));
}

}  // namespace weightcast::bench
