#include "client/files.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "patch/snapshot/safetensors.h"
#include "patch/snapshot/sidecar.h"

namespace weightcast::client {
namespace {

namespace fs = std::filesystem;

Error too_large(std::string_view what, std::uint64_t found, std::uint64_t limit) {
  return fail(Errc::kTooLarge, Op::kPublish,
              fmt::format("{}: {} exceed the limit of {} for files that accompany the weights", what, found, limit));
}

Result<std::string> read_whole(const fs::path& path) {
  std::error_code error;
  const std::uint64_t size_bytes = fs::file_size(path, error);
  if (error) return fail_errno(error.value(), Op::kRead, path.native());
  if (size_bytes > kSidecarBytesMax) {
    return too_large(path.native(), size_bytes, kSidecarBytesMax);
  }
  std::string bytes(size_bytes, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(bytes.data(), static_cast<std::streamsize>(size_bytes))) {
    return fail(Errc::kIo, Op::kRead, fmt::format("{}: cannot read all of its {} bytes", path.native(), size_bytes));
  }
  return bytes;
}

}  // namespace

Result<std::shared_ptr<Region>> pack_files(std::span<const wc_file> files) {
  if (files.empty()) return fail(Errc::kInvalidArgument, Op::kPublish, "no files were given");
  if (files.size() > kSidecarsMax) return too_large("the number of files", files.size(), kSidecarsMax);
  std::vector<TensorInfo> tensors;
  std::uint64_t bytes = 0;
  for (const wc_file& file : files) {
    if (file.name == nullptr || (file.data == nullptr && file.size_bytes > 0) || file.reserved != 0) {
      return fail(Errc::kInvalidArgument, Op::kPublish,
                  "a file's name or its data is NULL, or a reserved member is not 0");
    }
    if (!is_sidecar_name(file.name)) {
      return fail(Errc::kInvalidArgument, Op::kPublish,
                  fmt::format("file {}: not one that may accompany weights; those are configuration and tokenizer, by "
                              "plain names that end with .json, .jinja, .model or .txt",
                              quoted_name(file.name)));
    }
    if (file.size_bytes > kSidecarBytesMax) {
      return too_large(fmt::format("file {}", quoted_name(file.name)), file.size_bytes, kSidecarBytesMax);
    }
    bytes += file.size_bytes;
    TensorInfo& info = tensors.emplace_back();
    info.name = file.name;
    info.dtype = "U8";
    info.shape = {file.size_bytes};
    info.size_bytes = file.size_bytes;
  }
  if (bytes > kSidecarsBytesMax) return too_large("the files", bytes, kSidecarsBytesMax);
  WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(tensors));
  WC_ASSIGN(std::shared_ptr<Region> region, Region::create(layout.file_bytes));
  std::memcpy(region->data(), layout.header.data(), layout.header.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].size_bytes > 0) {
      std::memcpy(region->data() + layout.offsets_bytes[i], files[i].data, files[i].size_bytes);
    }
  }
  return region;
}

Result<std::shared_ptr<Region>> pack_directory(const std::string& directory) {
  std::error_code error;
  std::vector<std::pair<std::string, std::string>> found;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename();
    std::error_code unreadable;  // as of a link to nothing
    if (!is_sidecar_name(name) || !at->is_regular_file(unreadable)) continue;
    if (found.size() == kSidecarsMax) return too_large(directory, found.size() + 1, kSidecarsMax);
    WC_ASSIGN(std::string bytes, read_whole(at->path()));
    found.emplace_back(std::move(name), std::move(bytes));
  }
  if (error) return fail_errno(error.value(), Op::kOpen, directory);
  if (found.empty()) {
    return fail(Errc::kInvalidArgument, Op::kPublish,
                fmt::format("{}: holds no configuration or tokenizer; name the directory of the model's config.json",
                            directory));
  }
  std::vector<wc_file> files;
  for (const auto& [name, bytes] : found) files.push_back({name.c_str(), bytes.data(), bytes.size(), 0});
  return pack_files(files);
}

}  // namespace weightcast::client
