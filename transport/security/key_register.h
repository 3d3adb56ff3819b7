#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "transport/security/certificate.h"

namespace weightcast {

/// One certificate that was issued.
struct IssuedKeys {
  std::string name;
  KeyUse use = KeyUse::kWorker;
  std::string serial;
  std::int64_t expires_unix_s = 0;
  std::int64_t revoked_unix_s = 0;   ///< 0: it is not revoked
  std::int64_t replaced_unix_s = 0;  ///< from then on another counts in its place; 0: it is not replaced

  [[nodiscard]] std::int64_t end_unix_s() const {
    return replaced_unix_s == 0 ? expires_unix_s : std::min(expires_unix_s, replaced_unix_s);
  }
  [[nodiscard]] bool counts_at(std::int64_t unix_s) const { return revoked_unix_s == 0 && end_unix_s() >= unix_s; }
};

/// The list of what was issued in an authority's directory, `issued.json`, and the directory's lock. The command line
/// and an origin that enrols workers both work on it, one at a time. Writes are synced.
class KeyRegister {
 public:
  using Path = std::filesystem::path;

  /// Takes the lock, and reads the list if there is one. Errors: kBusy (another process has the lock), kCorrupt,
  /// kUnsupported (a later release wrote it), those of the files.
  [[nodiscard]] static Result<KeyRegister> open(const Path& directory);

  /// In the order in which they were issued.
  [[nodiscard]] const std::vector<IssuedKeys>& all() const { return all_; }
  [[nodiscard]] std::vector<IssuedKeys>& all() { return all_; }
  /// The first of that name; null if it never had keys.
  [[nodiscard]] const IssuedKeys* find(const std::string& name) const;
  /// One of that name that counts now.
  [[nodiscard]] const IssuedKeys* find_valid(const std::string& name, std::int64_t now_unix_s) const;

  void add(const CertificateInfo& issued);
  [[nodiscard]] Status write() const;

 private:
  KeyRegister(Path directory, std::unique_ptr<File> lock) : directory_(std::move(directory)), lock_(std::move(lock)) {}
  [[nodiscard]] Status read();

  Path directory_;
  std::unique_ptr<File> lock_;
  std::vector<IssuedKeys> all_;
};

}  // namespace weightcast
