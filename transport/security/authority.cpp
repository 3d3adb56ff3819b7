#include "transport/security/authority.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/files/posix_file_system.h"
#include "proto/limits.h"
#include "proto/names.h"
#include "transport/security/node_keys.h"
#include "transport/security/revocations.h"

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
  WC_TRY(made.write_authority());
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
  const bool has_before = contents.keys.size() == 2 && contents.certificates.size() == 4;
  if (!has_before && (contents.keys.size() != 1 || contents.certificates.size() != 1)) return corrupt();
  WC_ASSIGN(KeyRegister keys, KeyRegister::open(directory));
  Authority opened(directory, std::move(keys));
  opened.key_ = std::move(contents.keys.front());
  opened.certificate_ = std::move(contents.certificates.front());
  WC_ASSIGN(opened.info_, read_certificate(opened.certificate_.get()));
  const auto is_key_of = [](const UniqueKey& key, const UniqueX509& certificate) {
    return EVP_PKEY_eq(key.get(), X509_get0_pubkey(certificate.get())) == 1;
  };
  if (opened.info_.use != KeyUse::kAuthority || !is_key_of(opened.key_, opened.certificate_)) return corrupt();
  if (has_before) {
    std::vector<UniqueX509>& all = contents.certificates;
    Before before{std::move(contents.keys[1]), std::move(all[1]), std::move(all[2]), std::move(all[3])};
    if (!is_key_of(before.key, before.certificate)) return corrupt();
    WC_ASSIGN(const CertificateInfo counts, read_certificate(before.predecessor.get()));
    if (counts.not_after_unix_s >= now_unix_s) opened.before_ = std::move(before);
  }
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

Status Authority::write_authority() const {
  std::string text = fmt::format(
      "weightcast: the private key of the authority of cluster {}; it makes keys for any node\n", cluster());
  append_pem(text, key_.get());
  append_pem(text, certificate_.get());
  if (before_) {
    append_pem(text, before_->key.get());
    for (const UniqueX509* one : {&before_->certificate, &before_->successor, &before_->predecessor}) {
      append_pem(text, one->get());
    }
  }
  const Secret secret(std::move(text));
  return write_owner_only(authority_file(directory_), secret.text());
}

void Authority::add_between(std::vector<UniqueX509>& between) const {
  if (!before_) return;
  between.emplace_back(X509_dup(before_->successor.get()));
  between.emplace_back(X509_dup(before_->predecessor.get()));
}

std::vector<Authority::Counting> Authority::authorities() const {
  std::vector<Counting> counting{{info_.name, info_.not_after_unix_s}};
  if (!before_) return counting;
  const auto until = read_certificate(before_->predecessor.get());
  if (until.has_value()) counting.push_back({until->name, until->not_after_unix_s});
  return counting;
}

Result<NodeKeys> Authority::read_origin_keys(std::int64_t now_unix_s) const {
  Result<NodeKeys> keys = read_node_keys(directory_ / "origin.pem", now_unix_s);
  if (!keys.has_value()) keys.error().detail += "; a rotation needs the origin's file here";
  return keys;
}

Result<Path> Authority::rotate_signing(std::uint32_t overlap_days, std::int64_t now_unix_s) {
  WC_TRY(check_days(overlap_days));
  WC_ASSIGN(NodeKeys origin, read_origin_keys(now_unix_s));
  for (IssuedKeys& keys : register_.all()) {
    if (keys.use == KeyUse::kSigning && keys.replaced_unix_s == 0) {
      keys.replaced_unix_s = now_unix_s + std::int64_t{overlap_days} * kDay_s;
    }
  }
  origin.signing_key = make_key();
  WC_ASSIGN(origin.signing_certificate,
            certify({.use = KeyUse::kSigning, .name = origin.info.name, .key = origin.signing_key.get()}, kDaysDefault,
                    now_unix_s));
  // By the register the new key can be revoked, so it comes first; the list, which ends the old one, last.
  WC_TRY(register_.write());
  const Secret text = to_text(origin);
  WC_TRY(write_owner_only(directory_ / "origin.pem", text.text()));
  WC_TRY(write_revocations(now_unix_s));
  return directory_ / "origin.pem";
}

Result<Path> Authority::rotate_authority(std::uint32_t overlap_days, std::int64_t now_unix_s) {
  WC_TRY(check_days(overlap_days));
  WC_ASSIGN(const NodeKeys origin, read_origin_keys(now_unix_s));
  if (before_) {
    return fail(Errc::kAlreadyExists, Op::kWrite,
                fmt::format("{}: the authority before this one still counts; weightcast keys list shows until when",
                            directory_.native()));
  }
  const std::int64_t from = now_unix_s - kClockSkew_s;
  const std::int64_t until = std::min(now_unix_s + std::int64_t{overlap_days} * kDay_s, info_.not_after_unix_s);
  Before before{std::move(key_), std::move(certificate_), nullptr, nullptr};
  key_ = make_key();
  certificate_ = make_certificate({KeyUse::kAuthority, "", key_.get(), from, now_unix_s + kAuthorityDays * kDay_s},
                                  nullptr, key_.get());
  before.successor = make_certificate({KeyUse::kAuthority, "", key_.get(), from, info_.not_after_unix_s},
                                      before.certificate.get(), before.key.get());
  before.predecessor =
      make_certificate({KeyUse::kAuthority, "", before.key.get(), from, until}, certificate_.get(), key_.get());
  before_ = std::move(before);
  WC_ASSIGN(info_, read_certificate(certificate_.get()));
  WC_TRY(write_authority());
  PosixFileSystem files;
  WC_TRY(remove_if_there(files, directory_ / kEnrolmentFile));  // the next token makes one of this authority
  WC_TRY(write_revocations(now_unix_s));
  return write_node_keys(KeyUse::kOrigin, origin.info.name, kDaysDefault, now_unix_s, origin.info.addresses);
}

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
      return keys.serial == there->info.serial && keys.counts_at(until);
    };
    if (there.has_value() && std::ranges::any_of(register_.all(), is_valid)) return {};
  }
  EnrolmentKey made;
  made.key = make_key();
  made.certificate = make_certificate({KeyUse::kEnrolment, kEnrolmentName, made.key.get(), now_unix_s - kClockSkew_s,
                                       std::min(until + kEnrolmentReserve_s, info_.not_after_unix_s)},
                                      certificate_.get(), key_.get());
  made.authority.reset(X509_dup(certificate_.get()));
  add_between(made.between);
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
  add_between(keys.between);
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
  for (IssuedKeys& keys : register_.all()) {
    if (keys.name == name && keys.revoked_unix_s == 0) keys.revoked_unix_s = now_unix_s;
  }
  return write_revocations(now_unix_s);
}

Result<Path> Authority::write_revocations(std::int64_t now_unix_s) {
  const Path path = revoked_file(directory_);
  PosixFileSystem files;
  std::uint64_t number = 0;
  if (const auto text = read_file(files, path, kRevocationsBytesMax); text.has_value()) {
    Result<Revocations> last = Revocations::parse(*text, certificate_.get());
    if (!last.has_value() && before_) last = Revocations::parse(*text, before_->certificate.get());
    if (!last.has_value()) return last.error();
    number = last->number();
  } else if (text.error().code != Errc::kNotFound) {
    return text.error();
  }
  std::vector<Revoked> revoked;
  for (const IssuedKeys& keys : register_.all()) {
    // One that has expired is refused without the list, which would only grow.
    const bool has_ended = keys.revoked_unix_s != 0 || keys.replaced_unix_s != 0;
    if (!has_ended || keys.expires_unix_s + kClockSkew_s < now_unix_s) continue;
    revoked.push_back({keys.serial, keys.revoked_unix_s != 0 ? 0 : keys.replaced_unix_s});
  }
  std::string text = Revocations::make(revoked, number + 1, now_unix_s, certificate_.get(), key_.get()).to_pem();
  if (before_) {
    text += Revocations::make(revoked, number + 1, now_unix_s, before_->certificate.get(), before_->key.get()).to_pem();
  }
  if (text.size() > kRevocationsBytesMax) {
    return fail(Errc::kTooLarge, Op::kWrite,
                fmt::format("{}: {} revoked certificates are more than a list can hold; make a new authority",
                            path.native(), revoked.size()));
  }
  // The register first: it is what the next list is made from. If this one cannot be written, revoking again makes it.
  WC_TRY(register_.write());
  WC_TRY(write_owner_only(path, text));
  return path;
}

}  // namespace weightcast
