#include "transport/archive/s3_requests.h"

#include <fmt/format.h>

#include "base/text.h"
#include "transport/security/certificate.h"

namespace weightcast {
namespace {

// Before they end: a request that is under way has to end with them.
constexpr std::int64_t kRenewBefore_s = 15 * 60;
constexpr std::size_t kAnswerBytesMax = 64 * 1024;
constexpr const char* kRolePath = "/latest/meta-data/iam/security-credentials/";

}  // namespace

Result<std::vector<std::string>> S3Requests::headers_for(std::string_view method, const std::string& name,
                                                         const std::vector<std::string>& headers, Bytes body) {
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(const AwsCredentials credentials, this->credentials(now));
  AwsRequest request{std::string(method), path_of(name), {}, {{"Host", endpoint_.host}}, content_digest_of(body).hex()};
  for (const std::string& header : headers) {
    const auto colon = header.find(':');
    request.headers.emplace_back(header.substr(0, colon), header.substr(colon + 2));
  }
  std::vector<std::string> added;
  const auto add = [&](const char* header, const std::string& value) {
    request.headers.emplace_back(header, value);
    added.push_back(fmt::format("{}: {}", header, value));
  };
  add("x-amz-content-sha256", request.payload_hash);
  add("x-amz-date", aws_time(now));
  if (!credentials.session_token.empty()) add("x-amz-security-token", credentials.session_token);
  added.push_back("Authorization: " + aws_authorization(request, {settings_.region, "s3", now}, credentials));
  return added;
}

Result<AwsCredentials> S3Requests::credentials(std::int64_t now_unix_s) {
  if (settings_.credentials) return *settings_.credentials;
  if (!settings_.service) {
    return fail(Errc::kNotAllowed, Op::kConfigure,
                "no credentials for s3://: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE");
  }
  const std::lock_guard lock(mutex_);
  if (lent_ && (!lent_->expires_unix_s || now_unix_s < *lent_->expires_unix_s - kRenewBefore_s)) {
    return lent_->credentials;
  }
  Result<LentCredentials> asked = ask(*settings_.service);
  if (asked.has_value()) {
    lent_ = std::move(*asked);
  } else if (!lent_ || (lent_->expires_unix_s && now_unix_s >= *lent_->expires_unix_s)) {
    asked.error().code = Errc::kNotAllowed;
    asked.error().detail = fmt::format(
        "no credentials for s3://: neither the environment nor ~/.aws/credentials has any, and {} gives "
        "none: {}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        settings_.service->kind == CredentialService::Kind::kInstance ? "the instance's metadata service"
                                                                      : "the container's service",
        asked.error().detail);
    return asked.error();
  }
  return lent_->credentials;
}

Result<LentCredentials> S3Requests::ask(const CredentialService& service) {
  if (service.kind == CredentialService::Kind::kContainer) {
    std::vector<std::string> headers;
    if (!service.authorization.empty()) headers.push_back("Authorization: " + service.authorization);
    WC_ASSIGN(const std::string json, get(service.url, std::move(headers)));
    return parse_lent_credentials(json);
  }
  WC_ASSIGN(const std::string token,
            get(service.url + "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}, true));
  const std::string header = "X-aws-ec2-metadata-token: " + token;
  WC_ASSIGN(const std::string roles, get(service.url + kRolePath, {header}));
  const std::string role = roles.substr(0, roles.find('\n'));
  WC_ASSIGN(const std::string json, get(service.url + kRolePath + uri_encoded(role), {header}));
  return parse_lent_credentials(json);
}

Result<std::string> S3Requests::get(const std::string& url, std::vector<std::string> headers, bool put) {
  std::string text;
  WC_ASSIGN(
      const HttpAnswer answer,
      client_->perform(
          {put ? StorageHttpRequest::Method::kPut : StorageHttpRequest::Method::kGet, url, std::move(headers), {}},
          [&](const HttpAnswer&, Bytes piece) -> Status {
            if (text.size() + piece.size() > kAnswerBytesMax) {
              return fail(Errc::kTooLarge, Op::kReceive, "its answer is too long");
            }
            text += chars_of(piece);
            return {};
          }));
  if (answer.status != 200) return fail(Errc::kNotAllowed, Op::kReceive, fmt::format("it answers {}", answer.status));
  return text;
}

}  // namespace weightcast
