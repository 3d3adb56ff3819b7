#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "transport/core/manifest/manifest_trust.h"
#include "transport/io/event_loop.h"
#include "transport/io/net/network.h"
#include "transport/io/store/store.h"
#include "transport/node/payload/payload_archive.h"

namespace weightcast {

/// What a node needs of the world around it. run_daemon() gives it the host's; the simulator gives it a host of its own
/// making. All outlive the node.
struct NodeEnvironment {
  EventLoop& loop;
  Network& network;
  FileSystem& files;
  /// Opens the node's store, on the disk that it is to use. Called once.
  std::function<Result<std::unique_ptr<Store>>(StoreOptions)> open_store;
  /// Tells one run of a node from another: no two numbers are alike.
  std::function<std::uint64_t()> entropy;
  /// Destroys the node, soon, and opens another one at the same address. A worker asks for it when it follows another
  /// run: recovery then sorts out what is of which. "": it stays as it is, and gets nothing of that run.
  std::function<void()> reopen = {};
  /// An origin's: signs what it publishes. Null: nothing is signed.
  std::shared_ptr<const ManifestSigner> signer = nullptr;
  /// An origin's: whether its signing key counts at that time. Null: nobody asks.
  std::function<Status(std::int64_t unix_s)> may_sign = {};
  /// A worker's: judges what it is told. Null: everything is accepted.
  std::shared_ptr<const ManifestTrust> trust = nullptr;
  /// StoreOptions::choose_place. Null: DaemonConfig::place holds.
  std::function<StorePlace(std::uint64_t version_bytes)> choose_place = {};
  /// Reads the daemon's configuration file anew; what has changed, a line each. Null: there is none to read.
  std::function<Result<std::vector<std::string>>()> reload = {};
  /// StoreOptions::check_room.
  std::function<Status(std::uint64_t version_bytes, std::uint32_t copies)> check_room = {};
  /// Opens DaemonConfig::archive, where that is given. Null: none can be.
  OpenArchive open_archive = {};
};

}  // namespace weightcast
