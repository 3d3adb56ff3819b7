#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "transport/archive/aws_settings.h"
#include "transport/archive/http_client.h"
#include "transport/archive/http_objects.h"

namespace weightcast {

/// Requests to S3, and to what speaks as it does, signed with credentials that are renewed before they end. Any thread.
class S3Requests final : public RequestAuthor {
 public:
  /// `client` asks a container or an instance for credentials.
  S3Requests(std::unique_ptr<StorageHttpClient> client, S3Endpoint endpoint, AwsSettings settings)
      : client_(std::move(client)), endpoint_(std::move(endpoint)), settings_(std::move(settings)) {}

  [[nodiscard]] std::string url_of(const std::string& name) const override { return endpoint_.origin + path_of(name); }
  /// Errors: kNotAllowed (there are no credentials), those of their service.
  [[nodiscard]] Result<std::vector<std::string>> headers_for(std::string_view method, const std::string& name,
                                                             const std::vector<std::string>& headers,
                                                             Bytes body) override;

 private:
  [[nodiscard]] std::string path_of(const std::string& name) const { return endpoint_.path + uri_encoded(name); }
  [[nodiscard]] Result<AwsCredentials> credentials(std::int64_t now_unix_s);
  [[nodiscard]] Result<LentCredentials> ask(const CredentialService& service);
  [[nodiscard]] Result<std::string> get(const std::string& url, std::vector<std::string> headers, bool put = false);

  const std::unique_ptr<StorageHttpClient> client_;
  const S3Endpoint endpoint_;
  const AwsSettings settings_;
  std::mutex mutex_;  // guards `lent_`
  std::optional<LentCredentials> lent_;
};

}  // namespace weightcast
