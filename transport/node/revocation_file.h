#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "base/file_system.h"
#include "security/tls.h"
#include "transport/io/event_loop.h"

namespace weightcast {

/// Follows the list of revoked certificates beside a node's file of keys, `revoked.pem`: what `weightcast keys revoke`
/// writes there counts at this node within kInterval. Loop thread only. A list that cannot be read or is not this
/// cluster's is logged, and the one before still counts.
class RevocationFile {
 public:
  static constexpr Duration kInterval = std::chrono::milliseconds(500);

  /// `on_change` runs after another list has begun to count.
  RevocationFile(EventLoop& loop, FileSystem& files, std::shared_ptr<TlsContext> tls,
                 const std::filesystem::path& keys_file, std::function<void()> on_change);

  /// Reads the list if there is one. Errors: those of the file and of Revocations::parse().
  [[nodiscard]] Status read();

 private:
  void look();

  EventLoop& loop_;
  FileSystem& files_;
  const std::shared_ptr<TlsContext> tls_;
  const std::filesystem::path path_;
  const std::function<void()> on_change_;
  FileInfo seen_;
  Timer timer_;
};

}  // namespace weightcast
