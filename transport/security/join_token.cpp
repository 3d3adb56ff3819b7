#include "transport/security/join_token.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/digest/content_digest.h"
#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/units.h"
#include "proto/names.h"
#include "transport/security/base64.h"

namespace weightcast {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "wcjoin_";
constexpr std::byte kForm{1};
// A form, the authority, the id, the secret: a multiple of three, so that base64 needs no padding.
constexpr std::size_t kTokenBytes = 1 + 32 + 8 + 16;
constexpr std::size_t kTextBytes = kTokenBytes / 3 * 4;
constexpr int kFileForm = 1;
constexpr const char* kFile = "tokens.json";

std::string hex(std::string_view bytes) { return hex_of(std::as_bytes(std::span(bytes))); }

std::string hash_of(std::string_view secret) { return content_digest_of(std::as_bytes(std::span(secret))).hex(); }

Status check_pattern(std::string_view pattern) {
  std::string name(pattern);
  std::ranges::replace(name, '*', 'x');
  return check_node_name(name);
}

}  // namespace

Secret to_text(const JoinToken& token) {
  std::array<std::byte, kTokenBytes> bytes{kForm};
  auto* at = std::ranges::copy(token.authority.bytes, bytes.data() + 1).out;
  at = std::ranges::copy(token.id, at).out;
  std::ranges::copy(token.secret, at);
  std::string text;
  text.reserve(kPrefix.size() + kTextBytes + 1);  // so that the secret is not moved
  text = kPrefix;
  append_base64(bytes, text);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text.begin() + std::ptrdiff_t(kPrefix.size()), text.end(), '/', '.');
  return Secret(std::move(text));
}

Result<JoinToken> parse_join_token(std::string_view text) {
  const auto corrupt = [] {
    return fail(Errc::kCorrupt, Op::kParse, "not a join token; weightcast keys token prints one, of 83 characters");
  };
  if (!text.starts_with(kPrefix) || text.size() != kPrefix.size() + kTextBytes) return corrupt();
  std::string encoded(text.substr(kPrefix.size()));
  std::ranges::replace(encoded, '-', '+');
  std::ranges::replace(encoded, '.', '/');
  std::array<std::byte, kTokenBytes> bytes{};
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(encoded.data()), int(encoded.size()));
  OPENSSL_cleanse(encoded.data(), encoded.size());
  if (size != int(kTokenBytes) || bytes[0] != kForm) return corrupt();
  JoinToken token;
  const std::byte* at = bytes.data() + 1;
  std::copy_n(at, token.authority.bytes.size(), token.authority.bytes.begin());
  at += token.authority.bytes.size();
  std::copy_n(at, token.id.size(), token.id.begin());
  std::copy_n(at + token.id.size(), token.secret.size(), token.secret.begin());
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return token;
}

Result<OpenTokens> OpenTokens::read(const std::filesystem::path& directory) {
  OpenTokens tokens(directory);
  PosixFileSystem files;
  const std::filesystem::path path = directory / kFile;
  const Result<std::string> text = read_file(files, path, kMiB);
  if (!text.has_value()) {
    if (text.error().code == Errc::kNotFound) return tokens;
    return text.error();
  }
  try {
    const json parsed = json::parse(*text);
    if (parsed.at("form").get<int>() != kFileForm) {
      return fail(Errc::kUnsupported, Op::kParse, fmt::format("{}: a later release wrote it", path.native()));
    }
    for (const json& entry : parsed.at("tokens")) {
      Entry read;
      read.id = entry.at("id").get<std::string>();
      read.secret_hash = entry.at("secret_sha256").get<std::string>();
      read.order.names = entry.at("names").get<std::string>();
      read.order.uses = entry.at("uses_left").get<std::uint32_t>();
      read.order.expires_unix_s = entry.at("expires_unix_s").get<std::int64_t>();
      read.order.days = entry.at("days").get<std::uint32_t>();
      tokens.entries_.push_back(std::move(read));
    }
  } catch (const json::exception& error) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("{}: {}", path.native(), error.what()));
  }
  return tokens;
}

Status OpenTokens::write() const {
  json list = json::array();
  for (const Entry& entry : entries_) {
    list.push_back({{"id", entry.id},
                    {"secret_sha256", entry.secret_hash},
                    {"names", entry.order.names},
                    {"uses_left", entry.order.uses},
                    {"expires_unix_s", entry.order.expires_unix_s},
                    {"days", entry.order.days}});
  }
  return write_owner_only(directory_ / kFile, json_text({{"form", kFileForm}, {"tokens", std::move(list)}}, 1) + "\n");
}

Result<JoinToken> OpenTokens::add(const KeyId& authority, const TokenOrder& order, std::int64_t now_unix_s) {
  WC_TRY(check_pattern(order.names));
  const std::int64_t lifetime_s = order.expires_unix_s - now_unix_s;
  if (order.uses < 1 || order.uses > TokenOrder::kUsesMax || lifetime_s < 1 ||
      lifetime_s > TokenOrder::kLifetimeMax_s) {
    return fail(Errc::kInvalidArgument, Op::kWrite,
                fmt::format("a token has 1 to {} uses, and at most {} days", TokenOrder::kUsesMax,
                            TokenOrder::kLifetimeMax_s / kDay_s));
  }
  std::erase_if(entries_,
                [&](const Entry& entry) { return entry.order.expires_unix_s < now_unix_s || entry.order.uses == 0; });
  if (entries_.size() >= kTokensMax) {
    return fail(Errc::kTooLarge, Op::kWrite,
                fmt::format("{} join tokens are open; wait until some expire", kTokensMax));
  }
  JoinToken token{.authority = authority};
  WC_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(token.id.data()), int(token.id.size())) == 1 &&
           RAND_priv_bytes(reinterpret_cast<unsigned char*>(token.secret.data()), int(token.secret.size())) == 1);
  entries_.push_back({hex(chars_of(token.id)), hash_of(chars_of(token.secret)), order});
  WC_TRY(write());
  return token;
}

Result<TokenOrder> OpenTokens::find(std::string_view id, std::string_view secret, std::int64_t now_unix_s) const {
  const auto found = std::ranges::find(entries_, hex(id), &Entry::id);
  const std::string hash = hash_of(secret);
  const bool valid = found != entries_.end() && found->secret_hash.size() == hash.size() &&
                     CRYPTO_memcmp(found->secret_hash.data(), hash.data(), hash.size()) == 0 && found->order.uses > 0 &&
                     found->order.expires_unix_s >= now_unix_s;
  if (valid) return found->order;
  return fail(Errc::kNotAllowed, Op::kVerify,
              "the join token does not count: it is used up, has expired, or was never made; make another");
}

Status OpenTokens::use(std::string_view id) {
  const auto found = std::ranges::find(entries_, hex(id), &Entry::id);
  WC_CHECK(found != entries_.end() && found->order.uses > 0);
  if (--found->order.uses == 0) entries_.erase(found);
  return write();
}

}  // namespace weightcast
