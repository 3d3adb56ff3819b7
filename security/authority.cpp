#include "security/authority.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/posix_file_system.h"
#include "proto/limits.h"
#include "proto/names.h"
#include "security/node_keys.h"
#include "security/revocations.h"

namespace weightcast {
namespace {

using Path = Authority::Path;

constexpr std::int64_t kAuthorityDays = 3650;
// A file's name has 255 bytes at most, a node's may have as many.
constexpr std::size_t kStemBytesMax = 200;
// So that not every token needs an enrolment key of its own.
constexpr std::int64_t kEnrolmentReserve_s = 30 * kDay_s;

Path authority_file(const Path& directory) { return directory / "authority.pem"; }
Path revoked_file(const Path& directory) { return directory / "revoked.pem"; }

Path keys_file(const Path& directory, const CertificateInfo& info) {
  if (info.use == KeyUse::kOrigin) return directory / "origin.pem";
  std::string stem;
  for (const char c : info.name) stem += c == '/' ? std::string("%2F") : std::string(1, c);
  return directory / "workers" / ((stem.size() > kStemBytesMax ? info.serial : stem) + ".pem");
}

Status check_days(std::uint32_t days) {
  if (days >= 1 && days <= Authority::kDaysMax) return {};
  return fail(Errc::kInvalidArgument, Op::kWrite,
              fmt::format("{} days: 1 to {} can be had", days, Authority::kDaysMax));
}

}  // namespace

Result<Authority> Authority::init(const Path& directory, const std::string& origin_name, std::uint32_t days,
                                  std::int64_t now_unix_s) {
  WC_TRY(check_node_name(origin_name));
  PosixFileSystem files;
  WC_TRY(make_directories(files, directory));
  WC_ASSIGN(KeyRegister keys, KeyRegister::open(directory));
  if (exists(files, authority_file(directory))) {
    return fail(
        Errc::kAlreadyExists, Op::kWrite,
        fmt::format("{}: there is an authority already; issue from it, or choose another --dir", directory.native()));
  }
  Authority made(directory, std::move(keys));
  made.register_.all().clear();  // of an attempt that failed
  made.key_ = make_key();
  made.certificate_ = make_certificate(
      {KeyUse::kAuthority, "", made.key_.get(), now_unix_s - kClockSkew_s, now_unix_s + kAuthorityDays * kDay_s},
      nullptr, made.key_.get());
  WC_ASSIGN(made.info_, read_certificate(made.certificate_.get()));
  // The authority last: whatever fails before, the next attempt finds an unused directory.
  WC_TRY(made.write_node_keys(KeyUse::kOrigin, origin_name, days, now_unix_s));
  std::string text = fmt::format(
      "weightcast: the private key of the authority of cluster {}; it makes keys for any node\n", made.cluster());
  append_pem(text, made.key_.get());
  append_pem(text, made.certificate_.get());
  const Secret secret(std::move(text));
  WC_TRY(write_owner_only(authority_file(directory), secret.text()));
  return made;
}

Result<Authority> Authority::open(const Path& directory, std::int64_t now_unix_s) {
  Result<Secret> text = read_owner_only(authority_file(directory));
  if (!text.has_value()) {
    if (text.error().code == Errc::kNotFound) {
      text.error().detail += "; weightcast keys init makes an authority, and --dir says where it is";
    }
    return text.error();
  }
  WC_ASSIGN(PemContents contents, read_pem(text->text(), authority_file(directory).native()));
  const auto corrupt = [&] {
    return fail(Errc::kCorrupt, Op::kParse,
                fmt::format("{}: not an authority's key and certificate", authority_file(directory).native()));
  };
  if (contents.keys.size() != 1 || contents.certificates.size() != 1) return corrupt();
  WC_ASSIGN(KeyRegister keys, KeyRegister::open(directory));
  Authority opened(directory, std::move(keys));
  opened.key_ = std::move(contents.keys.front());
  opened.certificate_ = std::move(contents.certificates.front());
  WC_ASSIGN(opened.info_, read_certificate(opened.certificate_.get()));
  const bool is_its_key = EVP_PKEY_eq(opened.key_.get(), X509_get0_pubkey(opened.certificate_.get())) == 1;
  if (opened.info_.use != KeyUse::kAuthority || !is_its_key) return corrupt();
  if (now_unix_s > opened.info_.not_after_unix_s) {
    return fail(Errc::kTimedOut, Op::kOpen,
                fmt::format("{}: the authority expired on {}; make a new one with weightcast keys init, and issue anew",
                            directory.native(), date_of(opened.info_.not_after_unix_s)));
  }
  // What was issued without being listed could not be revoked.
  if (opened.register_.all().empty()) {
    return fail(Errc::kNotFound, Op::kRead,
                fmt::format("{}: issued.json is missing, which lists what was issued", directory.native()));
  }
  return opened;
}

std::string Authority::cluster() const { return info_.name; }

Result<JoinToken> Authority::make_token(const TokenOrder& order, std::int64_t now_unix_s) {
  WC_TRY(check_days(order.days));
  WC_TRY(ensure_enrolment_key(order.expires_unix_s + std::int64_t{order.days} * kDay_s, now_unix_s));
  WC_ASSIGN(OpenTokens tokens, OpenTokens::read(directory_));
  return tokens.add(info_.key, order, now_unix_s);
}

// Certificates that it issues do not outlive it.
Status Authority::ensure_enrolment_key(std::int64_t until_unix_s, std::int64_t now_unix_s) {
  const Path path = directory_ / kEnrolmentFile;
  const std::int64_t until = std::min(until_unix_s, info_.not_after_unix_s);
  if (register_.find_valid(kEnrolmentName, now_unix_s) != nullptr) {
    const Result<EnrolmentKey> there = read_enrolment_key(path, now_unix_s);
    const auto is_valid = [&](const IssuedKeys& keys) {
      return keys.serial == there->info.serial && keys.revoked_unix_s == 0 && keys.expires_unix_s >= until;
    };
    if (there.has_value() && std::ranges::any_of(register_.all(), is_valid)) return {};
  }
  EnrolmentKey made;
  made.key = make_key();
  made.certificate = make_certificate({KeyUse::kEnrolment, kEnrolmentName, made.key.get(), now_unix_s - kClockSkew_s,
                                       std::min(until + kEnrolmentReserve_s, info_.not_after_unix_s)},
                                      certificate_.get(), key_.get());
  made.authority.reset(X509_dup(certificate_.get()));
  WC_ASSIGN(made.info, read_certificate(made.certificate.get()));
  register_.add(made.info);
  WC_TRY(register_.write());
  const Secret text = to_text(made);
  return write_owner_only(path, text.text());
}

Result<Path> Authority::issue(const std::string& name, std::uint32_t days, bool renew, std::int64_t now_unix_s,
                              const std::vector<std::string>& addresses) {
  WC_TRY(check_node_name(name));
  if (addresses.size() > kCertificateAddressesMax) {
    return fail(Errc::kInvalidArgument, Op::kWrite,
                fmt::format("a node has at most {} addresses", kCertificateAddressesMax));
  }
  for (const std::string& host : addresses) {
    WC_TRY(check_host(host));
    if (host.empty()) return fail(Errc::kInvalidArgument, Op::kWrite, "an address is empty");
  }
  if (name == kEnrolmentName) {
    return fail(Errc::kInvalidArgument, Op::kWrite, fmt::format("{}: the name of the key that enrols workers", name));
  }
  const IssuedKeys* before = register_.find(name);
  if (renew && before == nullptr) {
    return fail(Errc::kNotFound, Op::kWrite, fmt::format("{} has no keys to renew; issue them without --renew", name));
  }
  const IssuedKeys* valid = register_.find_valid(name, now_unix_s);
  if (!renew && valid != nullptr) {
    return fail(Errc::kAlreadyExists, Op::kWrite,
                fmt::format("{} has keys until {}; --renew issues new ones, and weightcast keys revoke {} ends the old",
                            name, date_of(valid->expires_unix_s), name));
  }
  const bool is_origin = before != nullptr && before->use != KeyUse::kWorker;
  return write_node_keys(is_origin ? KeyUse::kOrigin : KeyUse::kWorker, name, days, now_unix_s, addresses);
}

Result<Path> Authority::write_node_keys(KeyUse use, const std::string& name, std::uint32_t days,
                                        std::int64_t now_unix_s, const std::vector<std::string>& addresses) {
  NodeKeys keys;
  keys.key = make_key();
  WC_ASSIGN(keys.certificate,
            certify({.use = use, .name = name, .key = keys.key.get(), .addresses = addresses}, days, now_unix_s));
  WC_ASSIGN(keys.info, read_certificate(keys.certificate.get()));
  keys.authority.reset(X509_dup(certificate_.get()));
  if (use == KeyUse::kOrigin) {
    keys.signing_key = make_key();
    WC_ASSIGN(keys.signing_certificate,
              certify({.use = KeyUse::kSigning, .name = name, .key = keys.signing_key.get()}, days, now_unix_s));
  }
  const Path path = keys_file(directory_, keys.info);
  PosixFileSystem files;
  WC_TRY(make_directories(files, path.parent_path()));
  WC_TRY(register_.write());  // first: a file without an entry could not be revoked
  const Secret text = to_text(keys);
  WC_TRY(write_owner_only(path, text.text()));
  return path;
}

Result<UniqueX509> Authority::certify(CertificateRequest request, std::uint32_t days, std::int64_t now_unix_s) {
  WC_TRY(check_days(days));
  request.not_before_unix_s = now_unix_s - kClockSkew_s;
  request.not_after_unix_s = std::min(now_unix_s + std::int64_t{days} * kDay_s, info_.not_after_unix_s);
  UniqueX509 made = make_certificate(request, certificate_.get(), key_.get());
  WC_ASSIGN(const CertificateInfo info, read_certificate(made.get()));
  register_.add(info);
  return made;
}

Result<Path> Authority::revoke(const std::string& name, std::int64_t now_unix_s) {
  if (register_.find(name) == nullptr) {
    return fail(Errc::kNotFound, Op::kWrite, fmt::format("{} has no keys; weightcast keys list shows who has", name));
  }
  PosixFileSystem files;
  std::uint64_t number = 0;
  if (const auto text = read_file(files, revoked_file(directory_), kRevocationsBytesMax); text.has_value()) {
    WC_ASSIGN(const Revocations before, Revocations::parse(*text, certificate_.get()));
    number = before.number();
  } else if (text.error().code != Errc::kNotFound) {
    return text.error();
  }
  std::vector<std::string> serials;
  for (IssuedKeys& keys : register_.all()) {
    if (keys.name == name && keys.revoked_unix_s == 0) keys.revoked_unix_s = now_unix_s;
    // One that has expired is refused without the list, which would only grow.
    if (keys.revoked_unix_s != 0 && keys.expires_unix_s + kClockSkew_s >= now_unix_s) serials.push_back(keys.serial);
  }
  const Revocations list = Revocations::make(serials, number + 1, now_unix_s, certificate_.get(), key_.get());
  const std::string text = list.to_pem();
  if (text.size() > kRevocationsBytesMax) {
    return fail(Errc::kTooLarge, Op::kWrite,
                fmt::format("{}: {} revoked certificates are more than a list can hold; make a new authority",
                            revoked_file(directory_).native(), serials.size()));
  }
  // The register first: it is what the next list is made from. If this one cannot be written, revoking again makes it.
  WC_TRY(register_.write());
  WC_TRY(write_owner_only(revoked_file(directory_), text));
  return revoked_file(directory_);
}

}  // namespace weightcast
