#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/security/enrolment.h"
#include "transport/security/join_token.h"
#include "transport/security/key_register.h"

namespace weightcast {

/// The authority of a cluster: a directory from which keys are issued.
///   authority.pem       its private key and certificate; after a rotation also those of the one before, and what each
///                       of the two certifies of the other
///   origin.pem          the origin's keys, among them the one that signs manifests
///   workers/NAME.pem    a worker's keys; a / in NAME is %2F, and the serial stands for a NAME that is too long
///   enrolment.pem       the key that signs the certificates of workers with join tokens; absent while there was none
///   tokens.json         the open join tokens, by hashes of their secrets
///   issued.json         what was issued, to whom
///   revoked.pem         the signed list of what no longer counts; absent while there is none
/// An origin that enrols workers needs enrolment.pem, tokens.json and issued.json. authority.pem may be kept elsewhere,
/// and brought back for each command. All files are for their owner only. An object holds the directory's lock.
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
  /// file. `addresses`: hosts at which the node may be dialled, besides the one that its connections come from. Errors:
  /// kInvalidArgument (the name, the addresses), kAlreadyExists (it has keys; not with `renew`), kNotFound (nothing to
  /// renew), those of the files.
  [[nodiscard]] Result<Path> issue(const std::string& name, std::uint32_t days, bool renew, std::int64_t now_unix_s,
                                   const std::vector<std::string>& addresses = {});

  /// Makes a token by which machines can enrol as workers at an origin that works on this directory, and the key that
  /// the origin needs for that. Errors: kInvalidArgument (the order), kTooLarge (too many tokens are open), those of
  /// the files.
  [[nodiscard]] Result<JoinToken> make_token(const TokenOrder& order, std::int64_t now_unix_s);

  /// In the order in which they were issued.
  [[nodiscard]] const std::vector<IssuedKeys>& issued() const { return register_.all(); }

  /// Makes another signing key for the origin. The one before counts for `overlap_days` more. Returns the path of the
  /// origin's new file. Errors: kNotFound (no origin.pem here), kInvalidArgument (the days), those of the files.
  [[nodiscard]] Result<Path> rotate_signing(std::uint32_t overlap_days, std::int64_t now_unix_s);
  /// Makes another authority, and keys of it for the origin. For `overlap_days` nodes with keys of either authority
  /// accept each other. Open join tokens end. Returns the path of the origin's new file. Errors: kAlreadyExists (the
  /// authority before the present one still counts), kNotFound (no origin.pem here), kInvalidArgument (the days), those
  /// of the files.
  [[nodiscard]] Result<Path> rotate_authority(std::uint32_t overlap_days, std::int64_t now_unix_s);

  /// The authorities that count, the present one first. Of the one before: until when nodes of the present one accept
  /// its keys.
  struct Counting {
    std::string cluster;
    std::int64_t until_unix_s = 0;
  };
  [[nodiscard]] std::vector<Counting> authorities() const;

  /// From now on no key that `name` has counts where the list of revoked certificates is known. Returns that list's
  /// path. Harmless if repeated. Errors: kNotFound (it never had keys), kTooLarge (the list), those of the files.
  [[nodiscard]] Result<Path> revoke(const std::string& name, std::int64_t now_unix_s);

 private:
  Authority(Path directory, KeyRegister keys) : directory_(std::move(directory)), register_(std::move(keys)) {}

  /// Issues a certificate for the request's key, and registers it.
  [[nodiscard]] Result<UniqueX509> certify(CertificateRequest request, std::uint32_t days, std::int64_t now_unix_s);
  /// Writes the list of what is revoked, and before it the register. Returns the list's path.
  [[nodiscard]] Result<Path> write_revocations(std::int64_t now_unix_s);
  [[nodiscard]] Status write_authority() const;
  [[nodiscard]] Result<NodeKeys> read_origin_keys(std::int64_t now_unix_s) const;
  /// What nodes of either authority need for each other: see Before.
  void add_between(std::vector<UniqueX509>& between) const;
  [[nodiscard]] Status ensure_enrolment_key(std::int64_t until_unix_s, std::int64_t now_unix_s);
  [[nodiscard]] Result<Path> write_node_keys(KeyUse use, const std::string& name, std::uint32_t days,
                                             std::int64_t now_unix_s, const std::vector<std::string>& addresses = {});

  Path directory_;
  KeyRegister register_;
  UniqueKey key_;
  UniqueX509 certificate_;
  CertificateInfo info_;
  /// The authority before this one, for as long as it counts.
  struct Before {
    UniqueKey key;
    UniqueX509 certificate;
    UniqueX509 successor;    ///< this authority, certified by the one before: for nodes that know only that
    UniqueX509 predecessor;  ///< the one before, certified by this one until it ends: for nodes that know only this
  };
  std::optional<Before> before_;
};

}  // namespace weightcast
