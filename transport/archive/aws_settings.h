#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "transport/archive/aws_signature.h"

namespace weightcast {

// A user's settings for the AWS tools, from where these read them. No network.

/// The value of a variable of the environment; nothing if it is not set, or "".
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
[[nodiscard]] Environment process_environment();

/// Files of ~/.aws, whose paths the environment may name: the text, or nothing where there is none.
struct AwsFiles {
  std::string credentials_path, config_path;
  std::optional<std::string> credentials, config;
};
/// Errors: kNotAllowed, kIo.
[[nodiscard]] Result<AwsFiles> read_aws_files(const Environment& environment);

/// A host or process that gives credentials: of a container, or the instance's metadata service.
struct CredentialService {
  enum class Kind : std::uint8_t { kContainer, kInstance };
  Kind kind = Kind::kInstance;
  std::string url;            ///< of the credentials; of an instance the service's root
  std::string authorization;  ///< of a container: the header's value, or ""
};

struct AwsSettings {
  std::string region;
  std::optional<AwsCredentials> credentials;  ///< nothing: `service` has them
  std::optional<CredentialService> service;   ///< nothing: none is to be asked
  std::string endpoint;                       ///< "": Amazon's
  std::string ca_bundle;                      ///< "": the system's
};

/// In the AWS tools' order: the environment, AWS_PROFILE's section of the files, the container's service, the
/// instance's. Errors: kInvalidArgument (a file has no such section, or half of a key; a service that would send
/// credentials over a network in the open), kIo.
[[nodiscard]] Result<AwsSettings> find_aws_settings(const Environment& environment, const AwsFiles& files);

/// Credentials that a service gave for a time.
struct LentCredentials {
  AwsCredentials credentials;
  std::optional<std::int64_t> expires_unix_s;
};
/// The JSON that both kinds of service give. Errors: kCorrupt.
[[nodiscard]] Result<LentCredentials> parse_lent_credentials(std::string_view json);

/// A bucket's place.
struct S3Place {
  std::string bucket, prefix;  ///< prefix: "" or with '/' at its end
};
/// "s3://BUCKET/PREFIX". Errors: kInvalidArgument.
[[nodiscard]] Result<S3Place> parse_s3_place(std::string_view text);

/// Where requests about a bucket go: scheme and host, and what stands before a key in the path, encoded, with '/' at
/// its end. With an endpoint, or a bucket's name with a dot, the bucket stands in the path, otherwise before the host.
struct S3Endpoint {
  std::string origin;
  std::string host;
  std::string path;
};
/// Errors: kInvalidArgument (the endpoint).
[[nodiscard]] Result<S3Endpoint> s3_endpoint(const S3Place& place, const AwsSettings& settings);

}  // namespace weightcast
