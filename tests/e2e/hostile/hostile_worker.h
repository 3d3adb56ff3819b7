#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/files/posix_file_system.h"
#include "base/units.h"
#include "proto/wire.pb.h"
#include "tests/transport/security/cluster_keys.h"
#include "transport/io/net/socket_network.h"
#include "transport/io/uv_loop.h"
#include "transport/node/node.h"

namespace weightcast {

/// How a hostile worker differs from an honest one.
enum class Conduct : std::uint8_t {
  kHonest,          ///< not at all, unless it is told to say something
  kFlipsABit,       ///< in each chunk that it forwards
  kSendsNothing,    ///< and says UpToDate
  kReplaysBytes,    ///< forwards the bytes of the version before under the new one's name
  kReplaysVersion,  ///< answers with chunks and digests of the version before, under their own name
  kDelays,          ///< forwards a chunk often enough for nobody to starve
  kServesHalf,      ///< every other chunk, and says UpToDate
  kOverstates,      ///< as kDelays, and tells the origin that it has all and lacks nothing
  kUnderstates,     ///< sends nothing, and tells the origin that it has next to nothing and that it starves
};
[[nodiscard]] std::string_view to_string(Conduct conduct);

/// The connections of one hostile worker: a real node's, whose words and chunks are changed on their way out. Children
/// dial their parents, so accepted connections lead to children, and dialled ones to the origin and to parents.
class HostileNetwork final : public Network {
 public:
  HostileNetwork(UvLoop& loop, Conduct conduct, std::shared_ptr<TlsContext> tls, Rate line);
  ~HostileNetwork() override;

  std::unique_ptr<Attempt> dial(const Endpoint& to, OnDialled on_dialled) override;
  Result<std::unique_ptr<Listener>> listen(const Endpoint& at, Listener::OnConnection on_connection) override;
  Result<std::unique_ptr<Listener>> listen_locally(const std::string& path,
                                                   Listener::OnConnection on_connection) override;
  /// Dials, says that first, and keeps the connection until the other end closes it.
  void say(const Endpoint& to, const wire::Message& message);
  /// Chunks that an honest relay would have sent otherwise, so far; from any thread.
  [[nodiscard]] int changed() const { return changed_; }
  /// Connections of say() that the other end has closed; from any thread.
  [[nodiscard]] int turned_away() const { return turned_away_; }

 private:
  class Connection;
  class ToChild;
  class ToOrigin;
  struct Said;
  using Chunks = std::map<std::uint32_t, BufferRef>;

  UvLoop& loop_;
  const Conduct conduct_;
  std::atomic<int> changed_ = 0;
  std::atomic<int> turned_away_ = 0;
  std::map<std::uint64_t, Chunks> forwarded_;                       // by version, for replays
  std::map<std::uint64_t, std::vector<std::string>> digests_sent_;  // DigestPart messages, by version
  SocketNetwork sockets_;
  std::vector<std::unique_ptr<Said>> said_;
};

/// A worker of that name in this process: the daemon's own node with keys of the cluster, on such connections. Its link
/// has the cap `line` either way. It runs on a thread of its own and ends with this object.
class HostileWorker {
 public:
  HostileWorker(const ClusterKeys& keys, const std::string& name, const std::string& state, const std::string& origin,
                Conduct conduct, Rate line = {});
  ~HostileWorker();
  HostileWorker(const HostileWorker&) = delete;
  HostileWorker& operator=(const HostileWorker&) = delete;

  [[nodiscard]] int changed() const { return network_.changed(); }
  [[nodiscard]] int turned_away() const { return network_.turned_away(); }
  /// As HostileNetwork::say(), on its own thread.
  void say(const std::string& to, const wire::Message& message);

 private:
  PosixFileSystem files_;
  UvLoop loop_;
  std::shared_ptr<TlsContext> tls_;
  HostileNetwork network_;
  std::unique_ptr<Node> node_;
  std::thread thread_;
};

}  // namespace weightcast
