// Parallax: src/backend/main.py (the scheduler: /weight/refit) and src/parallax/server/vllm_rust_frontend.py (a node's
// frontend, which generates), August 2026. Its sampler gives no log-probabilities.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "base/json_text.h"
#include "base/steady_clock.h"
#include "worker/backend/backend_json.h"
#include "worker/backend/parallax_blocks.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr Duration kAskNodesInterval = std::chrono::milliseconds(100);

class ParallaxProtocol final : public BackendProtocol {
 public:
  explicit ParallaxProtocol(BackendProtocolOptions options) : options_(std::move(options)) {}

  bool says_versions() const override { return false; }
  bool has_log_probs() const override { return false; }
  bool is_told() const override { return true; }
  HttpCall completion(const EngineRequest& request) const override {
    return completions_call(request, request.seed >> 1, options_.model, false);
  }
  Result<BackendAnswer> read_completion(const HttpResponse& response, const EngineRequest& request) const override {
    WC_ASSIGN(const Json choice, read_choice("/v1/completions", response));
    return read_choice_tokens(choice, request, options_.vocab_size, false);
  }

  Status install(FileSystem& files, const BackendCall& call, Version version, const std::filesystem::path& directory,
                 Duration limit) override {
    const Instant deadline = steady_now() + limit;
    WC_ASSIGN(const ParallaxIndex index,
              write_parallax_blocks(files, directory, options_.blocks, options_.block_bytes_max));
    Json cids = Json::array(), names = Json::object();
    for (const auto& [name, cid] : index) {
      names[name] = cid;
      if (std::find(cids.begin(), cids.end(), cid) == cids.end()) cids.push_back(cid);
    }
    // Nodes ignore an order that is not later than their last one, whatever its version.
    const std::chrono::duration<double> wall = std::chrono::system_clock::now().time_since_epoch();
    const double time = std::max(wall.count(), last_time_ + 1e-3);
    WC_TRY(read_backend_json("/weight/refit", call(backend_post("/weight/refit", {{"time_stamp", time},
                                                                                  {"cid", std::move(cids)},
                                                                                  {"index_map", std::move(names)},
                                                                                  {"version", version.value}}),
                                                   deadline - steady_now())));
    last_time_ = time;
    last_ = version;
    WC_TRY(wait_until_installed(call, deadline));
    return remove_other_blocks(files, options_.blocks, index);
  }

  Result<Version> installed(const BackendCall& call, Duration limit) override {
    constexpr const char* kPath = "/weight/refit/timestamp";
    WC_ASSIGN(const Json json, read_backend_json(kPath, call({.target = kPath}, limit)));
    const Json time = json.value("latest_timestamp", Json());
    // Written as text and read again, it is the same number.
    return time.is_number() && last_time_ > 0 && time.get<double>() == last_time_ ? last_ : kNoVersion;
  }

 private:
  Status wait_until_installed(const BackendCall& call, Instant deadline) {
    for (;;) {
      WC_ASSIGN(const Version here, installed(call, deadline - steady_now()));
      if (here == last_) return {};
      if (steady_now() + kAskNodesInterval >= deadline) {
        return fail(Errc::kTimedOut, Op::kInstall, "not all of the server has taken the version in time");
      }
      std::this_thread::sleep_for(kAskNodesInterval);
    }
  }

  const BackendProtocolOptions options_;
  double last_time_ = 0;  // of the last order, in seconds since 1970
  Version last_{};        // that it was about
};

}  // namespace

std::unique_ptr<BackendProtocol> make_parallax_protocol(BackendProtocolOptions options) {
  return std::make_unique<ParallaxProtocol>(std::move(options));
}

}  // namespace weightcast
