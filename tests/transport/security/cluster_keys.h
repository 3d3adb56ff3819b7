#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/patch/temp_dir.h"
#include "tests/result_matchers.h"
#include "transport/security/authority.h"
#include "transport/security/node_keys.h"
#include "transport/security/revocations.h"

namespace weightcast {

/// The authority of a cluster in a directory of its own, at a time of the test's choice.
class ClusterKeys {
 public:
  explicit ClusterKeys(std::int64_t now_s = unix_now_s()) : now_unix_s(now_s) {
    EXPECT_THAT(Authority::init(directory(), "origin", 365, now_unix_s), Succeeds());
  }

  [[nodiscard]] std::string directory() const { return temp_.file("keys"); }
  [[nodiscard]] std::string origin_file() const { return directory() + "/origin.pem"; }
  [[nodiscard]] std::string file_of(const std::string& worker) const {
    return directory() + "/workers/" + worker + ".pem";
  }
  [[nodiscard]] std::string revoked_file() const { return directory() + "/revoked.pem"; }
  [[nodiscard]] Authority open() const {
    auto opened = Authority::open(directory(), now_unix_s);
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    return std::move(*opened);
  }
  /// The path of a worker's new file.
  [[nodiscard]] std::string issue(const std::string& name, std::uint32_t days = 365, bool renew = false) const {
    const auto path = open().issue(name, days, renew, now_unix_s);
    EXPECT_TRUE(path.has_value()) << path.error().message();
    return path->native();
  }
  [[nodiscard]] bool has(const std::string& name) const {
    return std::ranges::any_of(open().issued(), [&](const IssuedKeys& keys) { return keys.name == name; });
  }
  void revoke(const std::string& name) const { EXPECT_THAT(open().revoke(name, now_unix_s), Succeeds()); }
  /// The list of revoked keys, as `node` reads it.
  [[nodiscard]] Revocations revocations(const NodeKeys& node) const {
    const auto text = read_owner_only(revoked_file());
    auto list = Revocations::parse(text->text(), node.authority.get());
    EXPECT_TRUE(list.has_value()) << list.error().message();
    return std::move(*list);
  }
  [[nodiscard]] NodeKeys read(const std::string& path) const {
    auto keys = read_node_keys(path, now_unix_s);
    EXPECT_TRUE(keys.has_value()) << keys.error().message();
    return std::move(*keys);
  }
  [[nodiscard]] NodeKeys origin() const { return read(origin_file()); }
  [[nodiscard]] NodeKeys worker(const std::string& name) const { return read(issue(name)); }
  /// The authority's own key, as a thief would have it.
  [[nodiscard]] PemContents authority() const {
    const auto secret = read_owner_only(directory() + "/authority.pem");
    return std::move(*read_pem(secret->text(), "authority"));
  }
  [[nodiscard]] const TempDir& temp() const { return temp_; }

  const std::int64_t now_unix_s;

 private:
  TempDir temp_;
};

}  // namespace weightcast
