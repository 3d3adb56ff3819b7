#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "security/certificate.h"

namespace weightcast {

/// One certificate that the authority has issued.
struct IssuedKeys {
  std::string name;
  KeyUse use = KeyUse::kWorker;
  std::string serial;
  std::int64_t expires_unix_s = 0;
  std::int64_t revoked_unix_s = 0;  ///< 0: it is not
};

/// The authority of a cluster: a directory from which keys are issued.
///   authority.pem       its private key and certificate
///   origin.pem          the origin's keys, among them the one that signs manifests
///   workers/NAME.pem    a worker's keys; a / in NAME is %2F, and the serial stands for a NAME that is too long
///   issued.json         what was issued, to whom
///   revoked.pem         the signed list of what no longer counts; absent while there is none
/// All files are for their owner only. An object holds the directory's lock.
class Authority {
 public:
  using Path = std::filesystem::path;

  static constexpr std::uint32_t kDaysDefault = 365;
  static constexpr std::uint32_t kDaysMax = 3650;

  /// Makes the authority of a new cluster, and the origin's keys. Errors: kAlreadyExists (the directory holds an
  /// authority), kInvalidArgument (the name), those of the files.
  [[nodiscard]] static Result<Authority> init(const Path& directory, const std::string& origin_name, std::uint32_t days,
                                              std::int64_t now_unix_s);
  /// Errors: kNotFound (no authority there), kBusy (another command works on it), kCorrupt, kNotAllowed.
  [[nodiscard]] static Result<Authority> open(const Path& directory, std::int64_t now_unix_s);

  [[nodiscard]] std::string cluster() const;

  /// Makes keys for a worker, or with `renew` new keys for a node that has some, for `days` or until the authority
  /// itself expires. The old ones of that node still count until they expire or are revoked. Returns the path of the
  /// file. Errors: kInvalidArgument (the name), kAlreadyExists (it has keys; not with `renew`), kNotFound (nothing to
  /// renew), those of the files.
  [[nodiscard]] Result<Path> issue(const std::string& name, std::uint32_t days, bool renew, std::int64_t now_unix_s);

  /// In the order in which they were issued.
  [[nodiscard]] const std::vector<IssuedKeys>& issued() const { return issued_; }

  /// From now on no key that `name` has counts where the list of revoked certificates is known. Returns that list's
  /// path. Harmless if repeated. Errors: kNotFound (it never had keys), kTooLarge (the list), those of the files.
  [[nodiscard]] Result<Path> revoke(const std::string& name, std::int64_t now_unix_s);

 private:
  Authority(Path directory, std::unique_ptr<File> lock) : directory_(std::move(directory)), lock_(std::move(lock)) {}

  /// Issues a certificate for `key`, and registers it.
  [[nodiscard]] Result<UniqueX509> certify(KeyUse use, const std::string& name, EVP_PKEY* key, std::uint32_t days,
                                           std::int64_t now_unix_s);
  [[nodiscard]] Result<Path> write_node_keys(KeyUse use, const std::string& name, std::uint32_t days,
                                             std::int64_t now_unix_s);
  [[nodiscard]] Status read_register();
  [[nodiscard]] Status write_register() const;
  /// Whether `name` has a certificate that counts.
  [[nodiscard]] const IssuedKeys* find_valid(const std::string& name, std::int64_t now_unix_s) const;
  [[nodiscard]] const IssuedKeys* find(const std::string& name) const;

  Path directory_;
  std::unique_ptr<File> lock_;
  UniqueKey key_;
  UniqueX509 certificate_;
  CertificateInfo info_;
  std::vector<IssuedKeys> issued_;
};

}  // namespace weightcast
