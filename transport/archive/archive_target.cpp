#include "transport/archive/archive_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/text.h"
#include "transport/archive/aws_settings.h"
#include "transport/archive/http_objects.h"
#include "transport/archive/s3_requests.h"

namespace weightcast {
namespace {

constexpr std::size_t kPieceBytes = kMiB;
// A machine that is no instance has nobody at that address.
constexpr StorageHttpLimits kCredentialLimits{.connect = std::chrono::milliseconds(2000),
                                              .stalled = std::chrono::seconds(5),
                                              .request = std::chrono::seconds(10),
                                              .attempts = 1};

/// Objects as files of a directory, which may be a network's.
class DirectoryObjects final : public ObjectStore {
 public:
  DirectoryObjects(FileSystem& files, std::filesystem::path directory)
      : files_(files), directory_(std::move(directory)) {}

  [[nodiscard]] std::string place_of(const std::string& name) const override { return (directory_ / name).native(); }
  [[nodiscard]] Result<std::optional<std::uint64_t>> size_of(const std::string& name) override {
    const Result<FileInfo> info = files_.info(directory_ / name);
    if (info.has_value()) return std::optional(info->size_bytes);
    if (info.error().code == Errc::kNotFound) return std::optional<std::uint64_t>();
    return info.error();
  }
  [[nodiscard]] Result<std::string> read(const std::string& name, std::uint64_t bytes_max) override {
    return read_file(files_, directory_ / name, bytes_max);
  }
  [[nodiscard]] Status read_range(const std::string& name, std::uint64_t object_bytes, std::uint64_t offset,
                                  std::uint64_t size, const Sink& sink) override {
    WC_ASSIGN(const std::unique_ptr<File> file, files_.open(directory_ / name, {}));
    WC_ASSIGN(const FileInfo info, file->info());
    if (info.size_bytes != object_bytes) {
      return fail(
          Errc::kCorrupt, Op::kRead,
          fmt::format("{}: it has {} bytes, and the index says {}", place_of(name), info.size_bytes, object_bytes));
    }
    std::vector<std::byte> buffer(std::min<std::uint64_t>(size, kPieceBytes));
    for (std::uint64_t done = 0; done < size;) {
      const MutableBytes piece = MutableBytes(buffer).first(std::min<std::uint64_t>(buffer.size(), size - done));
      WC_TRY(read_fully(*file, offset + done, piece, place_of(name)));
      WC_TRY(sink(piece));
      done += piece.size();
    }
    return {};
  }
  /// Makes the directory if it is missing.
  [[nodiscard]] Status write(const std::string& name, Bytes bytes) override {
    WC_TRY(make_directories(files_, directory_));
    return replace_file(files_, directory_ / name, chars_of(bytes), Synced::kBytesAndName);
  }

 private:
  FileSystem& files_;
  const std::filesystem::path directory_;
};

Result<std::unique_ptr<ObjectStore>> open_s3(const std::string& place, StorageHttpLimits limits) {
  const Environment environment = process_environment();
  WC_ASSIGN(const AwsFiles aws_files, read_aws_files(environment));
  WC_ASSIGN(AwsSettings settings, find_aws_settings(environment, aws_files));
  WC_ASSIGN(const S3Place s3_place, parse_s3_place(place));
  WC_ASSIGN(S3Endpoint endpoint, s3_endpoint(s3_place, settings));
  WC_ASSIGN(auto client, StorageHttpClient::make(limits, settings.ca_bundle));
  WC_ASSIGN(auto credentials_client, StorageHttpClient::make(kCredentialLimits, settings.ca_bundle));
  auto author = std::make_unique<S3Requests>(std::move(credentials_client), std::move(endpoint), std::move(settings));
  return std::unique_ptr<ObjectStore>(std::make_unique<HttpObjects>(std::move(client), std::move(author)));
}

Result<std::unique_ptr<ObjectStore>> open_http(const std::string& place, StorageHttpLimits limits) {
  WC_ASSIGN(auto author, PlainRequests::make(place));
  WC_ASSIGN(auto client, StorageHttpClient::make(limits, process_environment()("CURL_CA_BUNDLE").value_or("")));
  return std::unique_ptr<ObjectStore>(std::make_unique<HttpObjects>(std::move(client), std::move(author)));
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> open_objects(FileSystem& files, const std::string& place,
                                                  StorageHttpLimits limits) {
  if (place.starts_with("s3://")) return open_s3(place, limits);
  if (place.starts_with("https://") || place.starts_with("http://")) return open_http(place, limits);
  if (place.find("://") != place.npos) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "give s3://BUCKET/PREFIX, https://HOST/PATH or a directory");
  }
  return std::unique_ptr<ObjectStore>(std::make_unique<DirectoryObjects>(files, place));
}

}  // namespace weightcast
