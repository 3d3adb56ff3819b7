#pragma once

#include <filesystem>
#include <string>

#include "transport/security/certificate.h"
#include "transport/security/join_token.h"
#include "transport/security/node_keys.h"
#include "transport/security/owner_only_file.h"

namespace weightcast {

/// The name by which the key that enrols workers is listed and revoked. No node has it.
inline constexpr const char* kEnrolmentName = "enrolment";
/// Its file in the authority's directory.
inline constexpr const char* kEnrolmentFile = "enrolment.pem";

/// The key by which an origin signs certificates of workers, and of workers alone.
struct EnrolmentKey {
  UniqueKey key;
  UniqueX509 certificate;
  UniqueX509 authority;
  std::vector<UniqueX509> between;  ///< as NodeKeys::between, without `certificate`
  CertificateInfo info;             ///< of `certificate`
};

/// Errors: those of read_owner_only(); kCorrupt, kNotAllowed, kTimedOut as parse_node_keys().
[[nodiscard]] Result<EnrolmentKey> read_enrolment_key(const std::filesystem::path& path, std::int64_t now_unix_s);
[[nodiscard]] Secret to_text(const EnrolmentKey& key);

/// What a machine says that wants to be a worker. All of it is foreign.
struct EnrolmentRequest {
  std::string token_id;
  std::string token_secret;
  std::string name;       ///< "": the token's, or the host's
  std::string host_name;  ///< for a token that leaves the name free
  std::string key;        ///< X.509 certificate request (PKCS#10, DER), signed with the machine's new private key

  static constexpr std::size_t kKeyBytesMax = 1024;
};

/// A new worker.
struct Enrolled {
  std::string name;
  std::string certificates;  ///< PEM: its own, the enrolment key's, the authority's
};

/// Gives the machine a certificate, by the files in `directory`: enrolment.pem, tokens.json, issued.json. The token's
/// use is on the disk before the answer is there. Blocks; one at a time, because it holds the directory's lock. Errors
/// that are the machine's have Op::kVerify: kNotAllowed (the token does not count, or allows another name),
/// kAlreadyExists (the name has keys), kInvalidArgument (the name), kCorrupt (the request). Others are ours: kBusy
/// (another process works on the directory), those of the files.
[[nodiscard]] Result<Enrolled> enrol(const std::filesystem::path& directory, const EnrolmentRequest& request,
                                     std::int64_t now_unix_s);

/// The new machine's side: a private key, which stays there.
class Applicant {
 public:
  Applicant() : key_(make_key()) {}

  /// As EnrolmentRequest::key.
  [[nodiscard]] std::string key_request() const;
  /// The file of keys that Enrolled::certificates make of it. Errors: those of parse_node_keys(); kCorrupt (not a
  /// worker's, or of another authority than the token's).
  [[nodiscard]] Result<NodeKeys> keys_from(const std::string& certificates, const JoinToken& token,
                                           std::int64_t now_unix_s) const;

 private:
  UniqueKey key_;
};

}  // namespace weightcast
