#include "security/authority.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/posix_file_system.h"
#include "proto/limits.h"
#include "proto/names.h"
#include "security/node_keys.h"
#include "security/revocations.h"

namespace weightcast {
namespace {

using nlohmann::json;
using Path = Authority::Path;

constexpr std::int64_t kDay_s = 86'400;
constexpr std::int64_t kAuthorityDays = 3650;
// Hosts whose clocks are behind take a fresh certificate, too.
constexpr std::int64_t kClockSkew_s = 3600;
constexpr std::uint64_t kRegisterBytesMax = 64 * kMiB;
constexpr int kRegisterForm = 1;
// A file's name has 255 bytes at most, a node's may have as many.
constexpr std::size_t kStemBytesMax = 200;

Path authority_file(const Path& directory) { return directory / "authority.pem"; }
Path register_file(const Path& directory) { return directory / "issued.json"; }
Path revoked_file(const Path& directory) { return directory / "revoked.pem"; }

Path keys_file(const Path& directory, const CertificateInfo& info) {
  if (info.use == KeyUse::kOrigin) return directory / "origin.pem";
  std::string stem;
  for (const char c : info.name) stem += c == '/' ? std::string("%2F") : std::string(1, c);
  return directory / "workers" / ((stem.size() > kStemBytesMax ? info.serial : stem) + ".pem");
}

bool is_hexadecimal(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// One command at a time changes what is in the directory.
Result<std::unique_ptr<File>> lock_directory(const Path& directory) {
  PosixFileSystem files;
  WC_ASSIGN(std::unique_ptr<File> lock,
            files.open(directory / "lock",
                       {.write = true, .create = Create::kIfMissing, .follow_links = false, .permissions = 0600}));
  const Status locked = lock->lock();
  if (!locked.has_value() && locked.error().code == Errc::kBusy) {
    return fail(Errc::kBusy, Op::kLock, fmt::format("{}: another command works on it; try again", directory.native()));
  }
  WC_TRY(locked);
  return lock;
}

json to_json(const IssuedKeys& keys) {
  return {{"name", keys.name},
          {"use", std::string(to_string(keys.use))},
          {"serial", keys.serial},
          {"expires_unix_s", keys.expires_unix_s},
          {"revoked_unix_s", keys.revoked_unix_s}};
}

IssuedKeys issued_from(const json& entry) {
  IssuedKeys keys;
  keys.name = entry.at("name").get<std::string>();
  const std::string use = entry.at("use").get<std::string>();
  keys.use = use == to_string(KeyUse::kOrigin)    ? KeyUse::kOrigin
             : use == to_string(KeyUse::kSigning) ? KeyUse::kSigning
                                                  : KeyUse::kWorker;
  keys.serial = entry.at("serial").get<std::string>();
  keys.expires_unix_s = entry.at("expires_unix_s").get<std::int64_t>();
  keys.revoked_unix_s = entry.at("revoked_unix_s").get<std::int64_t>();
  return keys;
}

}  // namespace

Result<Authority> Authority::init(const Path& directory, const std::string& origin_name, std::uint32_t days,
                                  std::int64_t now_unix_s) {
  WC_TRY(check_node_name(origin_name));
  PosixFileSystem files;
  WC_TRY(make_directories(files, directory));
  WC_ASSIGN(std::unique_ptr<File> lock, lock_directory(directory));
  if (exists(files, authority_file(directory))) {
    return fail(
        Errc::kAlreadyExists, Op::kWrite,
        fmt::format("{}: there is an authority already; issue from it, or choose another --dir", directory.native()));
  }
  Authority made(directory, std::move(lock));
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
  WC_ASSIGN(std::unique_ptr<File> lock, lock_directory(directory));
  Authority opened(directory, std::move(lock));
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
  WC_TRY(opened.read_register());
  return opened;
}

std::string Authority::cluster() const { return info_.name; }

Result<Path> Authority::issue(const std::string& name, std::uint32_t days, bool renew, std::int64_t now_unix_s) {
  WC_TRY(check_node_name(name));
  const IssuedKeys* before = find(name);
  if (renew && before == nullptr) {
    return fail(Errc::kNotFound, Op::kWrite, fmt::format("{} has no keys to renew; issue them without --renew", name));
  }
  const IssuedKeys* valid = find_valid(name, now_unix_s);
  if (!renew && valid != nullptr) {
    return fail(Errc::kAlreadyExists, Op::kWrite,
                fmt::format("{} has keys until {}; --renew issues new ones, and weightcast keys revoke {} ends the old",
                            name, date_of(valid->expires_unix_s), name));
  }
  const bool is_origin = before != nullptr && before->use != KeyUse::kWorker;
  return write_node_keys(is_origin ? KeyUse::kOrigin : KeyUse::kWorker, name, days, now_unix_s);
}

Result<Path> Authority::write_node_keys(KeyUse use, const std::string& name, std::uint32_t days,
                                        std::int64_t now_unix_s) {
  NodeKeys keys;
  keys.key = make_key();
  WC_ASSIGN(keys.certificate, certify(use, name, keys.key.get(), days, now_unix_s));
  WC_ASSIGN(keys.info, read_certificate(keys.certificate.get()));
  keys.authority.reset(X509_dup(certificate_.get()));
  if (use == KeyUse::kOrigin) {
    keys.signing_key = make_key();
    WC_ASSIGN(keys.signing_certificate, certify(KeyUse::kSigning, name, keys.signing_key.get(), days, now_unix_s));
  }
  const Path path = keys_file(directory_, keys.info);
  PosixFileSystem files;
  WC_TRY(make_directories(files, path.parent_path()));
  WC_TRY(write_register());  // first: a file without an entry could not be revoked
  const Secret text = to_text(keys);
  WC_TRY(write_owner_only(path, text.text()));
  return path;
}

Result<UniqueX509> Authority::certify(KeyUse use, const std::string& name, EVP_PKEY* key, std::uint32_t days,
                                      std::int64_t now_unix_s) {
  if (days < 1 || days > kDaysMax) {
    return fail(Errc::kInvalidArgument, Op::kWrite, fmt::format("{} days: 1 to {} can be had", days, kDaysMax));
  }
  const std::int64_t until = std::min(now_unix_s + std::int64_t{days} * kDay_s, info_.not_after_unix_s);
  UniqueX509 made =
      make_certificate({use, name, key, now_unix_s - kClockSkew_s, until}, certificate_.get(), key_.get());
  WC_ASSIGN(const CertificateInfo info, read_certificate(made.get()));
  issued_.push_back({name, use, info.serial, until, 0});
  return made;
}

Result<Path> Authority::revoke(const std::string& name, std::int64_t now_unix_s) {
  if (find(name) == nullptr) {
    return fail(Errc::kNotFound, Op::kWrite, fmt::format("{} has no keys; weightcast keys list shows who has", name));
  }
  PosixFileSystem files;
  std::uint64_t number = 0;
  if (const auto text = read_file(files, revoked_file(directory_), kRegisterBytesMax); text.has_value()) {
    WC_ASSIGN(const Revocations before, Revocations::parse(*text, certificate_.get()));
    number = before.number();
  } else if (text.error().code != Errc::kNotFound) {
    return text.error();
  }
  std::vector<std::string> serials;
  for (IssuedKeys& keys : issued_) {
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
  WC_TRY(write_register());
  WC_TRY(write_owner_only(revoked_file(directory_), text));
  return revoked_file(directory_);
}

const IssuedKeys* Authority::find(const std::string& name) const {
  const auto found = std::ranges::find(issued_, name, &IssuedKeys::name);
  return found == issued_.end() ? nullptr : &*found;
}

const IssuedKeys* Authority::find_valid(const std::string& name, std::int64_t now_unix_s) const {
  const auto found = std::ranges::find_if(issued_, [&](const IssuedKeys& keys) {
    return keys.name == name && keys.revoked_unix_s == 0 && keys.expires_unix_s >= now_unix_s;
  });
  return found == issued_.end() ? nullptr : &*found;
}

Status Authority::read_register() {
  PosixFileSystem files;
  const Path path = register_file(directory_);
  WC_ASSIGN(const std::string text, read_file(files, path, kRegisterBytesMax));
  try {
    const json parsed = json::parse(text);
    if (parsed.at("form").get<int>() != kRegisterForm) {
      return fail(Errc::kUnsupported, Op::kParse, fmt::format("{}: a later release wrote it", path.native()));
    }
    for (const json& entry : parsed.at("keys")) issued_.push_back(issued_from(entry));
    const bool readable = std::ranges::all_of(issued_, is_hexadecimal, &IssuedKeys::serial);
    if (!readable) return fail(Errc::kCorrupt, Op::kParse, fmt::format("{}: a serial is no number", path.native()));
  } catch (const json::exception& error) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("{}: {}", path.native(), error.what()));
  }
  return {};
}

Status Authority::write_register() const {
  json list = json::array();
  for (const IssuedKeys& keys : issued_) list.push_back(to_json(keys));
  return write_owner_only(register_file(directory_),
                          json_text({{"form", kRegisterForm}, {"keys", std::move(list)}}, 1) + "\n");
}

}  // namespace weightcast
