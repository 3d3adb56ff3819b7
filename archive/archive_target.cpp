#include "archive/archive_target.h"

#include <utility>

#include "archive/aws_settings.h"
#include "archive/directory_objects.h"
#include "archive/http_objects.h"
#include "archive/s3_requests.h"

namespace weightcast {
namespace {

// A machine that is no instance has nobody at that address.
constexpr StorageHttpLimits kCredentialLimits{.connect = std::chrono::milliseconds(2000),
                                              .stalled = std::chrono::seconds(5),
                                              .request = std::chrono::seconds(10),
                                              .attempts = 1};

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
