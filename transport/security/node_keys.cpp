#include "transport/security/node_keys.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <utility>

namespace weightcast {
namespace {

// Of a file that this program wrote there are six at most.
constexpr std::size_t kBlocksMax = 16;

/// Of PEM with a pass phrase: none is ever asked for on a terminal.
int no_pass_phrase(char*, int, int, void*) { return 0; }

UniqueKey take_key_of(std::vector<UniqueKey>& keys, X509* certificate) {
  for (UniqueKey& key : keys) {
    if (key && EVP_PKEY_eq(key.get(), X509_get0_pubkey(certificate)) == 1) return std::move(key);
  }
  return nullptr;
}

}  // namespace

Result<PemContents> read_pem(const std::string& text, const std::string& what) {
  set_up_openssl();
  const auto corrupt = [&](std::string_view why) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("{}: {}; issue the file anew", what, why));
  };
  const UniqueBio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  WC_CHECK(bio);
  PemContents contents;
  for (;;) {
    char* name = nullptr;
    char* header = nullptr;
    unsigned char* data = nullptr;
    long size = 0;
    if (PEM_read_bio(bio.get(), &name, &header, &data, &size) != 1) break;
    const std::string kind = name;
    const unsigned char* at = data;
    bool parsed = false;
    if (kind == PEM_STRING_PKCS8INF) {
      UniqueKey key(d2i_AutoPrivateKey(nullptr, &at, size));
      parsed = key != nullptr;
      if (parsed) contents.keys.push_back(std::move(key));
    } else if (kind == PEM_STRING_X509) {
      UniqueX509 certificate(d2i_X509(nullptr, &at, size));
      parsed = certificate != nullptr;
      if (parsed) contents.certificates.push_back(std::move(certificate));
    }
    OPENSSL_clear_free(data, static_cast<std::size_t>(size));
    OPENSSL_free(name);
    OPENSSL_free(header);
    if (!parsed) {
      static_cast<void>(take_openssl_error());
      return corrupt("a block in it is neither a private key nor a certificate");
    }
    if (contents.keys.size() + contents.certificates.size() > kBlocksMax) return corrupt("more blocks than a file has");
  }
  // The end of the text is an error, too, to OpenSSL.
  const unsigned long reason = ERR_GET_REASON(ERR_peek_last_error());
  static_cast<void>(take_openssl_error());
  if (reason != PEM_R_NO_START_LINE) return corrupt("a block in it is damaged");
  return contents;
}

void append_pem(std::string& text, EVP_PKEY* key) {
  const UniqueBio bio(BIO_new(BIO_s_secmem()));
  WC_CHECK(bio && PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, no_pass_phrase, nullptr) == 1);
  text += text_of(bio.get());
}

void append_pem(std::string& text, X509* certificate) {
  const UniqueBio bio(BIO_new(BIO_s_mem()));
  WC_CHECK(bio && PEM_write_bio_X509(bio.get(), certificate) == 1);
  text += text_of(bio.get());
}

Result<NodeKeys> parse_node_keys(const std::string& text, const std::string& what, std::int64_t now_unix_s) {
  WC_ASSIGN(PemContents contents, read_pem(text, what));
  const auto corrupt = [&](std::string_view why) {
    return fail(Errc::kCorrupt, Op::kParse,
                fmt::format("{}: {}; a node takes the file that weightcast keys init or issue made for it", what, why));
  };
  NodeKeys keys;
  for (UniqueX509& certificate : contents.certificates) {
    const Result<CertificateInfo> info = read_certificate(certificate.get());
    if (!info.has_value()) return corrupt(info.error().detail);
    const bool is_between = info->use == KeyUse::kEnrolment ||
                            (info->use == KeyUse::kAuthority && X509_self_signed(certificate.get(), 1) != 1);
    if (is_between) {
      keys.between.push_back(std::move(certificate));
      continue;
    }
    UniqueX509& place = info->use == KeyUse::kAuthority ? keys.authority
                        : info->use == KeyUse::kSigning ? keys.signing_certificate
                                                        : keys.certificate;
    if (place) return corrupt(fmt::format("two certificates for the use \"{}\"", to_string(info->use)));
    if (&place == &keys.certificate) keys.info = *info;
    place = std::move(certificate);
  }
  if (!keys.authority) return corrupt("the authority's certificate is missing");
  if (!keys.certificate) return corrupt("the node's certificate is missing");
  keys.key = take_key_of(contents.keys, keys.certificate.get());
  if (!keys.key) return corrupt("the private key of its certificate is missing");
  const bool is_origin = keys.info.use == KeyUse::kOrigin;
  if (is_origin != (keys.signing_certificate != nullptr)) {
    return corrupt(is_origin ? "the signing key is missing" : "it holds a signing key, which only an origin has");
  }
  if (is_origin) keys.signing_key = take_key_of(contents.keys, keys.signing_certificate.get());
  if (is_origin && !keys.signing_key) return corrupt("the signing key is missing");
  for (X509* certificate : {keys.authority.get(), keys.certificate.get(), keys.signing_certificate.get()}) {
    if (certificate == nullptr) continue;
    const Result<Vouched> issued = check_chain(certificate, keys.issuers(), keys.authority.get(), now_unix_s);
    if (issued.has_value()) continue;
    const bool expired = issued.error().code == Errc::kTimedOut;
    return fail(issued.error().code, Op::kVerify,
                fmt::format("{}: {}{}", what, issued.error().detail,
                            expired ? fmt::format("; weightcast keys issue {} --renew makes another", keys.info.name)
                                    : std::string()));
  }
  return keys;
}

Result<NodeKeys> read_node_keys(const std::filesystem::path& path, std::int64_t now_unix_s) {
  Result<Secret> text = read_owner_only(path);
  if (!text.has_value()) {
    if (text.error().code == Errc::kNotFound) {
      text.error().detail += "; weightcast keys init makes the origin's, weightcast keys issue NAME a worker's";
    }
    return text.error();
  }
  return parse_node_keys(text->text(), path.native(), now_unix_s);
}

Between NodeKeys::issuers() const {
  Between all;
  for (const UniqueX509& one : between) all.push_back(one.get());
  return all;
}

Secret to_text(const NodeKeys& keys) {
  std::string text =
      fmt::format("weightcast: the private key of {} {} in cluster {}, valid until {}\n", to_string(keys.info.use),
                  keys.info.name, keys.info.cluster, date_of(keys.info.not_after_unix_s));
  append_pem(text, keys.key.get());
  append_pem(text, keys.certificate.get());
  for (const UniqueX509& between : keys.between) append_pem(text, between.get());
  append_pem(text, keys.authority.get());
  if (keys.signing_key) {
    append_pem(text, keys.signing_key.get());
    append_pem(text, keys.signing_certificate.get());
  }
  return Secret(std::move(text));
}

bool are_same(const NodeKeys& a, const NodeKeys& b) { return to_text(a).matches(to_text(b).text()); }

std::optional<std::string> NodeKeys::expiry_warning(std::int64_t now_unix_s) const {
  if (info.not_after_unix_s - now_unix_s > kExpiryWarning_s) return std::nullopt;
  return fmt::format("the certificate of {} {} on {}; weightcast keys issue {} --renew makes another", info.name,
                     now_unix_s > info.not_after_unix_s ? "has expired" : "expires", date_of(info.not_after_unix_s),
                     info.name);
}

}  // namespace weightcast
