#include "transport/archive/aws_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files/posix_file_system.h"
#include "base/units.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using Section = std::map<std::string, std::string>;

constexpr std::uint64_t kFileBytesMax = kMiB;
constexpr const char* kContainerHost = "http://169.254.170.2";
constexpr const char* kInstanceRoot = "http://169.254.169.254";

Error wrong(std::string text) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(text)); }

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// The section of that name; nothing if there is none. Lines that are indented belong to nested settings.
std::optional<Section> section_of(std::string_view text, std::string_view name) {
  std::optional<Section> found;
  bool inside = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string_view content = trimmed(line);
    if (content.empty() || content.front() == '#' || content.front() == ';') continue;
    if (content.front() == '[') {
      inside = trimmed(content.substr(1, content.find(']') - 1)) == name;
      if (inside && !found) found.emplace();
      continue;
    }
    const auto equals = content.find('=');
    if (!inside || equals == content.npos || line.front() == ' ' || line.front() == '\t') continue;
    (*found)[std::string(trimmed(content.substr(0, equals)))] = trimmed(content.substr(equals + 1));
  }
  return found;
}

std::string value_of(const Section& section, const std::string& key) {
  const auto found = section.find(key);
  return found == section.end() ? "" : found->second;
}

Result<std::optional<AwsCredentials>> credentials_in(const Section& section, const std::string& where) {
  AwsCredentials credentials{value_of(section, "aws_access_key_id"), value_of(section, "aws_secret_access_key"),
                             value_of(section, "aws_session_token")};
  if (credentials.access_key.empty() && credentials.secret_key.empty()) return std::optional<AwsCredentials>();
  if (credentials.access_key.empty() || credentials.secret_key.empty()) {
    return wrong(where + ": it has one of aws_access_key_id and aws_secret_access_key; both are needed");
  }
  return std::optional(std::move(credentials));
}

bool is_loopback(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return false;
  url.remove_prefix(kScheme.size());
  if (url.starts_with("[::1]")) return true;
  const std::string_view host = url.substr(0, url.find_first_of(":/?#"));
  return host == "localhost" || (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

Result<std::optional<CredentialService>> container_service(const Environment& environment) {
  CredentialService service{CredentialService::Kind::kContainer, "", ""};
  if (const auto relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")) {
    service.url = kContainerHost + *relative;
  } else if (const auto full = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
    service.url = *full;
    // Those of Amazon's ECS and EKS agents.
    const bool link_local = full->starts_with(std::string(kContainerHost) + "/") ||
                            full->starts_with("http://169.254.170.23/") || full->starts_with("http://[fd00:ec2::23]/");
    if (!full->starts_with("https://") && !link_local && !is_loopback(*full)) {
      return wrong(
          "AWS_CONTAINER_CREDENTIALS_FULL_URI: it sends credentials over a network in the open; give https://");
    }
  } else {
    return std::optional<CredentialService>();
  }
  if (const auto path = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) {
    PosixFileSystem files;
    WC_ASSIGN(const std::string text, read_file(files, *path, kFileBytesMax));
    service.authorization = trimmed(std::string_view(text).substr(0, text.find('\n')));
  } else {
    service.authorization = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN").value_or("");
  }
  return std::optional(std::move(service));
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

Result<AwsFiles> read_aws_files(const Environment& environment) {
  const std::string home = environment("HOME").value_or("/") + "/.aws/";
  AwsFiles read{environment("AWS_SHARED_CREDENTIALS_FILE").value_or(home + "credentials"),
                environment("AWS_CONFIG_FILE").value_or(home + "config"), std::nullopt, std::nullopt};
  PosixFileSystem files;
  for (const auto& [path, text] :
       {std::pair(&read.credentials_path, &read.credentials), std::pair(&read.config_path, &read.config)}) {
    Result<std::string> found = read_file(files, *path, kFileBytesMax);
    if (found.has_value()) {
      *text = std::move(*found);
    } else if (found.error().code != Errc::kNotFound) {
      return found.error();
    }
  }
  return read;
}

Result<AwsSettings> find_aws_settings(const Environment& environment, const AwsFiles& files) {
  const std::optional<std::string> named = environment("AWS_PROFILE");
  const std::string profile = named.value_or("default");
  const std::string config_name = profile == "default" ? profile : "profile " + profile;
  const auto secrets = files.credentials ? section_of(*files.credentials, profile) : std::nullopt;
  const auto config = files.config ? section_of(*files.config, config_name) : std::nullopt;
  if (named && !secrets && !config) {
    return wrong(fmt::format("AWS_PROFILE: neither {} has [{}] nor {} has [{}]", files.credentials_path, profile,
                             files.config_path, config_name));
  }
  AwsSettings settings;
  const auto from = [&](const char* first, const char* second, const std::string& key) {
    if (auto value = environment(first)) return *value;
    if (auto value = environment(second)) return *value;
    return value_of(config.value_or(Section()), key);
  };
  settings.region = from("AWS_REGION", "AWS_DEFAULT_REGION", "region");
  if (settings.region.empty()) settings.region = "us-east-1";
  settings.endpoint = from("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "endpoint_url");
  settings.ca_bundle = from("AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "ca_bundle");

  WC_ASSIGN(settings.credentials,
            credentials_in({{"aws_access_key_id", environment("AWS_ACCESS_KEY_ID").value_or("")},
                            {"aws_secret_access_key", environment("AWS_SECRET_ACCESS_KEY").value_or("")},
                            {"aws_session_token", environment("AWS_SESSION_TOKEN").value_or("")}},
                           "the environment"));
  if (settings.credentials) return settings;
  for (const auto& [section, path] :
       {std::pair(&secrets, &files.credentials_path), std::pair(&config, &files.config_path)}) {
    if (!*section) continue;
    WC_ASSIGN(auto found, credentials_in(**section, *path));
    if (!found) continue;
    settings.credentials = std::move(found);
    return settings;
  }
  WC_ASSIGN(settings.service, container_service(environment));
  if (!settings.service && environment("AWS_EC2_METADATA_DISABLED").value_or("") != "true") {
    settings.service = CredentialService{CredentialService::Kind::kInstance,
                                         environment("AWS_EC2_METADATA_SERVICE_ENDPOINT").value_or(kInstanceRoot), ""};
  }
  return settings;
}

Result<LentCredentials> parse_lent_credentials(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  const auto value = [&](const char* key) -> std::string {
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return "";
    return json[key].get<std::string>();
  };
  LentCredentials lent{{value("AccessKeyId"), value("SecretAccessKey"), value("Token")}, std::nullopt};
  if (lent.credentials.access_key.empty() || lent.credentials.secret_key.empty()) {
    return fail(Errc::kCorrupt, Op::kParse, "the service of credentials answers without a key");
  }
  if (const std::string expires = value("Expiration"); !expires.empty()) {
    std::tm utc{};
    if (::strptime(expires.c_str(), "%Y-%m-%dT%H:%M:%S", &utc) == nullptr) {
      return fail(Errc::kCorrupt, Op::kParse, "the service of credentials says no time of their end");
    }
    lent.expires_unix_s = ::timegm(&utc);
  }
  return lent;
}

Result<S3Place> parse_s3_place(std::string_view text) {
  constexpr std::string_view kScheme = "s3://";
  S3Place place;
  if (text.starts_with(kScheme)) text.remove_prefix(kScheme.size());
  place.bucket = text.substr(0, text.find('/'));
  place.prefix = text.substr(std::min(text.size(), place.bucket.size() + 1));
  while (!place.prefix.empty() && place.prefix.back() == '/') place.prefix.pop_back();
  const bool named_right =
      place.bucket.size() >= 3 && place.bucket.size() <= 63 && std::ranges::all_of(place.bucket, [](unsigned char c) {
        return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-' || c == '.';
      });
  if (!named_right) return wrong("s3://" + std::string(text) + ": give s3://BUCKET/PREFIX, with a bucket's name");
  // A '..' would be taken out of the path on its way, after it was signed.
  for (const std::string_view part : {"//", "/./", "/../"}) {
    if (("/" + place.prefix + "/").find(part) != std::string::npos && !place.prefix.empty()) {
      return wrong("s3://" + std::string(text) + ": a prefix has no empty part, '.' or '..'");
    }
  }
  if (!place.prefix.empty()) place.prefix += '/';
  return place;
}

Result<S3Endpoint> s3_endpoint(const S3Place& place, const AwsSettings& settings) {
  S3Endpoint endpoint;
  const bool in_path = !settings.endpoint.empty() || place.bucket.find('.') != std::string::npos;
  std::string root = settings.endpoint;
  if (root.empty()) {
    root = fmt::format("https://{}s3.{}.amazonaws.com", in_path ? "" : place.bucket + ".", settings.region);
  }
  while (root.ends_with('/')) root.pop_back();
  const auto scheme = root.find("://");
  const std::string host = scheme == root.npos ? "" : root.substr(scheme + 3);
  const bool right = (root.starts_with("https://") || root.starts_with("http://")) && !host.empty() &&
                     host.find_first_of("/?#@ ") == host.npos;
  if (!right) return wrong("AWS_ENDPOINT_URL: give https://HOST or https://HOST:PORT, without a path");
  endpoint.origin = root;
  endpoint.host = host;
  endpoint.path = "/" + (in_path ? place.bucket + "/" : "") + uri_encoded(place.prefix, "/");
  return endpoint;
}

}  // namespace weightcast
