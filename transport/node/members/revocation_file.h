#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/files/file_system.h"
#include "transport/io/event_loop.h"
#include "transport/security/tls.h"

namespace weightcast {

/// The list of revoked certificates that a node goes by. It comes from two places, and the one with the greatest number
/// counts:
///
///   revoked.pem beside the file of keys   what `weightcast keys revoke` writes; looked at every kInterval
///   the origin                            what workers get with a heartbeat
///
/// The node keeps the one that counts in DIR/revoked.pem, so that a restart forgets nothing. Loop thread only.
/// Invariant: the list of `tls` is signed by this cluster's authority, and its number never falls.
class RevocationFile {
 public:
  static constexpr Duration kInterval = std::chrono::milliseconds(500);

  struct Places {
    std::filesystem::path keys_file;
    std::filesystem::path state;  ///< the node's state directory
  };

  /// `on_change` runs after another list has begun to count.
  RevocationFile(EventLoop& loop, FileSystem& files, std::shared_ptr<TlsContext> tls, const Places& places,
                 std::function<void()> on_change);

  /// Reads what there is, and begins to look. A list of another cluster does not count. Errors: kCorrupt, those of the
  /// files.
  [[nodiscard]] Status start();

  /// Whether the list beside the keys could be read by a node of the cluster of `authority`. Which list counts stays as
  /// it is. Errors: as start().
  [[nodiscard]] Status check(X509* authority) const;
  /// Reads the list beside the keys now, whether it has changed or not. What is wrong with it is logged.
  void look_again();

  /// A list from anywhere. It counts from now on if it is this cluster's and newer than the one that counts. Errors:
  /// those of Revocations::parse(); kNotAllowed (it is older); those of writing it down, and then it counts until the
  /// next start.
  [[nodiscard]] Status take(const std::string& text);

 private:
  /// As take(), without writing it down. Returns whether another list counts now.
  [[nodiscard]] Result<bool> adopt(const std::string& text);
  /// The list beside the keys, if it has changed since it was looked at last.
  [[nodiscard]] Status read_beside_keys();
  [[nodiscard]] Status read_kept();
  void look();

  EventLoop& loop_;
  FileSystem& files_;
  const std::shared_ptr<TlsContext> tls_;
  const std::filesystem::path beside_keys_;
  const std::filesystem::path kept_;
  const std::function<void()> on_change_;
  FileInfo seen_;
  Timer timer_;
};

}  // namespace weightcast
