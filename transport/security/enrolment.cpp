#include "transport/security/enrolment.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "proto/names.h"
#include "transport/security/key_register.h"
#include "transport/security/node_keys.h"

namespace weightcast {
namespace {

/// The public key of a request whose sender has proven to have the private one.
Result<UniqueKey> key_of(const std::string& request) {
  const auto corrupt = [](std::string_view why) {
    static_cast<void>(take_openssl_error());
    return fail(Errc::kCorrupt, Op::kVerify, fmt::format("the certificate request {}", why));
  };
  if (request.size() > EnrolmentRequest::kKeyBytesMax) return corrupt("is too long");
  const auto* at = reinterpret_cast<const unsigned char*>(request.data());
  const UniqueRequest parsed(d2i_X509_REQ(nullptr, &at, static_cast<long>(request.size())));
  if (!parsed) return corrupt("does not parse");
  UniqueKey key(X509_REQ_get_pubkey(parsed.get()));
  if (!key || EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519) return corrupt("has no Ed25519 key");
  if (X509_REQ_verify(parsed.get(), key.get()) != 1) return corrupt("is not signed with its key");
  return key;
}

Result<std::string> choose_name(const EnrolmentRequest& request, const TokenOrder& token) {
  const bool is_free = token.names.find('*') != std::string::npos;
  std::string name = !request.name.empty() ? request.name : is_free ? request.host_name : token.names;
  if (const Status fits = check_node_name(name); !fits.has_value()) {
    return fail(Errc::kInvalidArgument, Op::kVerify, fits.error().detail + "; choose one with --name");
  }
  if (name != kEnrolmentName && matches_pattern(token.names, name)) return name;
  return fail(Errc::kNotAllowed, Op::kVerify,
              fmt::format("the join token is for {}, not for {}", token.names, printable(name)));
}

}  // namespace

Result<EnrolmentKey> read_enrolment_key(const std::filesystem::path& path, std::int64_t now_unix_s) {
  WC_ASSIGN(const Secret text, read_owner_only(path));
  WC_ASSIGN(PemContents contents, read_pem(text.text(), path.native()));
  EnrolmentKey read;
  if (contents.keys.size() == 1) read.key = std::move(contents.keys.front());
  for (UniqueX509& certificate : contents.certificates) {
    WC_ASSIGN(CertificateInfo info, read_certificate(certificate.get()));
    if (info.use == KeyUse::kAuthority && X509_self_signed(certificate.get(), 1) != 1) {
      read.between.push_back(std::move(certificate));
    } else if (info.use == KeyUse::kAuthority) {
      read.authority = std::move(certificate);
    } else if (info.use == KeyUse::kEnrolment) {
      read.certificate = std::move(certificate);
      read.info = std::move(info);
    }
  }
  const bool complete = read.key && read.certificate && read.authority &&
                        EVP_PKEY_eq(read.key.get(), X509_get0_pubkey(read.certificate.get())) == 1;
  if (!complete) {
    return fail(Errc::kCorrupt, Op::kParse,
                fmt::format("{}: not a key for enrolment; weightcast keys token makes it anew", path.native()));
  }
  const Status issued = check_issued(read.certificate.get(), read.authority.get(), now_unix_s);
  if (!issued.has_value()) {
    return fail(issued.error().code, Op::kOpen,
                fmt::format("{}: {}; weightcast keys token makes another", path.native(), issued.error().detail));
  }
  return read;
}

Secret to_text(const EnrolmentKey& key) {
  std::string text = fmt::format("weightcast: the private key that enrols workers in cluster {}, valid until {}\n",
                                 key.info.cluster, date_of(key.info.not_after_unix_s));
  append_pem(text, key.key.get());
  append_pem(text, key.certificate.get());
  for (const UniqueX509& one : key.between) append_pem(text, one.get());
  append_pem(text, key.authority.get());
  return Secret(std::move(text));
}

Result<Enrolled> enrol(const std::filesystem::path& directory, const EnrolmentRequest& request,
                       std::int64_t now_unix_s) {
  WC_ASSIGN(KeyRegister issued, KeyRegister::open(directory));
  WC_ASSIGN(OpenTokens tokens, OpenTokens::read(directory));
  WC_ASSIGN(const TokenOrder token, tokens.find(request.token_id, request.token_secret, now_unix_s));
  WC_ASSIGN(const std::string name, choose_name(request, token));
  WC_ASSIGN(const UniqueKey key, key_of(request.key));
  const IssuedKeys* before = issued.find(name);
  const bool was_other = before != nullptr && before->use != KeyUse::kWorker;
  if (was_other || issued.find_valid(name, now_unix_s) != nullptr) {
    return fail(
        Errc::kAlreadyExists, Op::kVerify,
        fmt::format("{} has keys; choose another name, or end them with weightcast keys revoke {}", name, name));
  }
  WC_ASSIGN(const EnrolmentKey signer, read_enrolment_key(directory / kEnrolmentFile, now_unix_s));
  const std::int64_t until = std::min(now_unix_s + std::int64_t{token.days} * kDay_s, signer.info.not_after_unix_s);
  const UniqueX509 certificate = make_certificate({KeyUse::kWorker, name, key.get(), now_unix_s - kClockSkew_s, until},
                                                  signer.certificate.get(), signer.key.get());
  WC_ASSIGN(const CertificateInfo info, read_certificate(certificate.get()));
  // The use first: whatever fails after it, nobody uses the token twice. Then the entry, by which it can be revoked.
  WC_TRY(tokens.use(request.token_id));
  issued.add(info);
  WC_TRY(issued.write());
  Enrolled made{name, {}};
  append_pem(made.certificates, certificate.get());
  append_pem(made.certificates, signer.certificate.get());
  for (const UniqueX509& one : signer.between) append_pem(made.certificates, one.get());
  append_pem(made.certificates, signer.authority.get());
  return made;
}

std::string Applicant::key_request() const {
  const UniqueRequest request(X509_REQ_new());
  WC_CHECK(request && X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) == 1 &&
           X509_REQ_set_pubkey(request.get(), key_.get()) == 1 &&
           X509_REQ_sign(request.get(), key_.get(), nullptr) > 0);
  return der_of<i2d_X509_REQ>(request.get());
}

Result<NodeKeys> Applicant::keys_from(const std::string& certificates, const JoinToken& token,
                                      std::int64_t now_unix_s) const {
  std::string text;
  append_pem(text, key_.get());
  text += certificates;
  const Secret whole(std::move(text));
  WC_ASSIGN(NodeKeys keys, parse_node_keys(whole.text(), "the origin's answer", now_unix_s));
  if (key_id(X509_get0_pubkey(keys.authority.get())) == token.authority && keys.role() == Role::kWorker) return keys;
  return fail(Errc::kCorrupt, Op::kVerify, "the origin's answer is not a worker's keys of the token's cluster");
}

}  // namespace weightcast
