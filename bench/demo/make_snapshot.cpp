#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files/posix_file_system.h"
#include "base/process.h"
#include "base/random.h"
#include "base/units.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kTensorBytes = 4 * kMiB;

// BF16 numbers of both signs between 2^-8 and 1: never infinite, never NaN.
void fill_bf16(MutableBytes out, Random random) {
  for (std::size_t at = 0; at < out.size(); at += 8) {
    const std::uint64_t bits = (random.next() & 0x83ff'83ff'83ff'83ff) + 0x3b80'3b80'3b80'3b80;
    std::memcpy(out.data() + at, &bits, std::min<std::size_t>(8, out.size() - at));
  }
}

Status make_snapshot(const std::string& directory, std::uint64_t size_bytes, std::uint64_t seed) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return fail(Errc::kIo, Op::kWrite, directory + ": " + error.message());

  std::vector<TensorInfo> tensors;
  for (std::uint64_t left = size_bytes / 2 * 2; left > 0;) {
    const std::uint64_t bytes = std::min(left, kTensorBytes);
    const std::string name = "model.layers." + std::to_string(tensors.size()) + ".mlp.up_proj.weight";
    tensors.push_back({name, "BF16", {bytes / 2}, 0, bytes});
    left -= bytes;
  }
  WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(tensors, {{"format", "pt"}}));

  std::vector<std::byte> memory(layout.file_bytes - layout.header.size());
  fill_bf16(memory, Random(seed));
  const std::string path = directory + "/model.safetensors";
  PosixFileSystem files;
  WC_ASSIGN(const std::unique_ptr<File> file, files.open(path, {.write = true, .create = Create::kEmpty}));
  FileWriter out(*file, path);
  WC_TRY(out.write(std::as_bytes(std::span(layout.header))));
  return out.write(memory);
}

Status run(const std::string& directory, const std::string& size, const std::string& seed_text) {
  WC_ASSIGN(const std::uint64_t size_bytes, parse_bytes(size));
  std::uint64_t seed = 0;
  const char* const end = seed_text.data() + seed_text.size();
  if (const auto parsed = std::from_chars(seed_text.data(), end, seed); parsed.ec != std::errc{} || parsed.ptr != end) {
    return fail(Errc::kInvalidArgument, Op::kParse, "'" + seed_text + "': expected a number as seed");
  }
  return make_snapshot(directory, size_bytes, seed);
}

}  // namespace
}  // namespace weightcast

int main(int argc, char** argv) {
  weightcast::set_up_process();
  if (argc != 4) {
    std::fprintf(stderr, "usage: make_snapshot DIR SIZE SEED\n");
    return 2;
  }
  const weightcast::Status status = weightcast::run(argv[1], argv[2], argv[3]);
  if (status.has_value()) return 0;
  std::fprintf(stderr, "make_snapshot: %s\n", status.error().message().c_str());
  return 1;
}
