#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "patch/snapshot/safetensors.h"
#include "tests/client/scripted_daemon.h"

namespace weightcast {

/// A publication as the daemon sees it.
struct Offered {
  local::Message request;
  int fd = -1;
  int files_fd = -1;

  Offered() = default;
  Offered(Offered&& other) noexcept
      : request(std::move(other.request)),
        fd(std::exchange(other.fd, -1)),
        files_fd(std::exchange(other.files_fd, -1)) {}
  Offered& operator=(Offered&& other) noexcept {
    std::swap(request, other.request);
    std::swap(fd, other.fd);
    std::swap(files_fd, other.files_fd);
    return *this;
  }
  ~Offered() {
    if (fd >= 0) ::close(fd);
    if (files_fd >= 0) ::close(files_fd);
  }
  [[nodiscard]] std::uint64_t id() const { return request.request_id; }
  static std::string bytes_of(int from, std::uint64_t size_bytes) {
    struct stat info {};
    EXPECT_EQ(::fstat(from, &info), 0);
    std::string out(size_bytes > 0 ? size_bytes : std::size_t(info.st_size), '\0');
    EXPECT_EQ(::pread(from, out.data(), out.size(), 0), ssize_t(out.size()));
    return out;
  }
  [[nodiscard]] std::string bytes() const {
    const auto* whole = request.get<local::PublishRequest>();
    return bytes_of(fd, whole != nullptr ? whole->region_bytes : 0);
  }
  /// Name and contents of each tensor of a safetensors file, its dtype before the name if `with_dtype`.
  static std::map<std::string, std::string> tensors_of(const std::string& file, bool with_dtype = false) {
    const auto header = parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "offered");
    EXPECT_TRUE(header.has_value()) << header.error().message();
    std::map<std::string, std::string> out;
    for (const TensorInfo& tensor : header->tensors) {
      out[(with_dtype ? tensor.dtype + " " : "") + tensor.name] = file.substr(tensor.offset_bytes, tensor.size_bytes);
    }
    return out;
  }
  /// Name and contents of each file that came beside the weights.
  [[nodiscard]] std::map<std::string, std::string> files() const {
    return tensors_of(bytes_of(files_fd, as<local::PublishRequest>(request).files_bytes));
  }
};

inline constexpr std::size_t kBytes = 100'000;

/// A client whose daemon the test plays.
struct PublishTest : testing::Test {
  ScriptedDaemon daemon;
  wc::Client client{daemon.state_dir()};
  std::vector<wc::Tensor> tensors{{.name = "w", .dtype = "U8", .shape = {kBytes}, .data = nullptr, .size_bytes = 0}};

  /// Fills a region with one value.
  void fill(char value, const wc::PublishOptions& options = {}, wc::Milliseconds timeout = std::chrono::seconds(5)) {
    std::memset(client.begin(tensors, options, timeout).at(0), value, kBytes);
  }
  Offered receive() {
    Offered offered;
    if (auto request = daemon.receive()) offered.request = *request;
    offered.fd = daemon.take_descriptor();
    offered.files_fd = daemon.take_descriptor();
    EXPECT_TRUE(offered.request.get<local::PublishRequest>() || offered.request.get<local::PublishChangesRequest>());
    return offered;
  }
  /// The request that the daemon receives, and accepts as `version`, while `call` runs.
  Offered accept_during(std::uint64_t version, const std::function<void()>& call) {
    Offered offered;
    std::thread origin([&] {
      offered = receive();
      daemon.send(accepted_reply(version), offered.id());
    });
    call();
    origin.join();
    return offered;
  }
  /// Publishes changes of `count` cells of "w" to `value`; the daemon accepts them.
  Offered publish_changes(std::uint64_t version, char value, std::uint32_t count,
                          const wc::PublishOptions& options = {}) {
    std::vector<std::uint32_t> indices(count);
    for (std::uint32_t i = 0; i < count; ++i) indices[i] = 3 * i;
    const std::string values(count, value);
    return accept_during(version, [&] {
      EXPECT_EQ(client.publish_sparse(version - 1, {change(indices, values)}, options, std::chrono::seconds(5)),
                version);
    });
  }
  static wc::Change change(const std::vector<std::uint32_t>& indices, const std::string& values) {
    return {.name = "w",
            .dtype = "U8",
            .indices = indices.data(),
            .index_bytes = 4,
            .values = values.data(),
            .count = indices.size()};
  }
  /// Commits the filled region; the daemon accepts it.
  Offered commit(std::uint64_t version) {
    return accept_during(version, [&] { EXPECT_EQ(client.commit(std::chrono::seconds(5)), version); });
  }
  Offered publish(std::uint64_t version, char value, const wc::PublishOptions& options = {}) {
    fill(value, options);
    return commit(version);
  }
};

}  // namespace weightcast
