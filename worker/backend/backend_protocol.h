#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "base/settings/words.h"
#include "base/time.h"
#include "base/units.h"
#include "transport/http/client.h"
#include "worker/engine/answer_source.h"

namespace weightcast {

/// Servers of other projects that generate in place of our engine, and our own `weightcast-engine serve`.
enum class BackendKind : std::uint8_t { kVllm, kSglang, kParallax, kWeightcast };
constexpr Words<4> words_of(BackendKind) { return {"vllm", "sglang", "parallax", "weightcast"}; }

/// What becomes of answers that are under way when another version is installed.
enum class BackendSwitch : std::uint8_t {
  kWait,       ///< they end first
  kRestart,    ///< they begin anew after it
  kKeep,       ///< they go on under it; only where the server says which token is of which version
  kRecompute,  ///< the same, and their keys and values are computed again
};
constexpr Words<4> words_of(BackendSwitch) { return {"wait", "restart", "keep", "recompute"}; }
/// Whether they go on under the other version.
[[nodiscard]] constexpr bool goes_on(BackendSwitch policy) {
  return policy == BackendSwitch::kKeep || policy == BackendSwitch::kRecompute;
}

/// One call to the server. Errors: those of HttpClient::call().
using BackendCall = std::function<Result<HttpResponse>(const HttpCall& call, Duration limit)>;

/// An answer as the server gave it. Tokens have version kNoVersion where the server does not say it.
struct BackendAnswer {
  std::vector<EngineToken> tokens;
  FinishReason finished = FinishReason::kLength;
};

/// A version that the server is to generate under.
struct BackendInstall {
  Version version{};
  std::filesystem::path directory;  ///< safetensors as Hugging Face names them; stays as it is meanwhile
  BackendSwitch on_switch = BackendSwitch::kWait;
};

/// What a run asks of a server that generates.
struct BackendNeeds {
  SamplingOptions sampling = {};     ///< of every request
  std::uint64_t context_tokens = 0;  ///< of a prompt and its answer together, at most
  /// The learner takes the sampler's log-probabilities: log softmax(logits / temperature) over the whole vocabulary.
  bool log_probs = true;
  BackendSwitch on_switch = BackendSwitch::kWait;
  bool allows_quantisation = false;
  /// Of the low-rank adapters that are published, for the model that the server was started with; 0: whole models are.
  std::uint64_t adapter_rank = 0;
};

/// What a server says of itself.
struct BackendServer {
  std::string name;   ///< and release, for a person
  std::string dtype;  ///< of its arithmetic: "float32", "bfloat16"; "": it does not say
  std::string model;  ///< the directory, or the name, of what it was started with; "": it does not say
};

struct BackendProtocolOptions {
  std::string model;                          ///< in requests; "": they name none
  std::uint64_t vocab_size = 0;               ///< of the model: ids are below it
  std::uint64_t positions_max = 0;            ///< of the model: an answer may end there; 0: without bound
  std::filesystem::path blocks;               ///< kParallax: where blocks are written
  std::uint64_t block_bytes_max = 64 * kMiB;  ///< kParallax: of a block's tensor; a row may exceed it
};

/// How one kind of server is spoken to. Has no connection of its own. Any thread may read and write completions;
/// all calls to the server are made one at a time. docs/WORKERS.md names the routes and fields, and the releases that
/// they were read from.
class BackendProtocol {
 public:
  virtual ~BackendProtocol() = default;

  /// Asks the server what it is and how it was started. Comes before everything else, and again after the server may
  /// have been started anew. Errors: kUnsupported and kInvalidArgument, which say what of it does not do for `needs`,
  /// and the flag to start it with; those of `call`; kBusy, kCorrupt as read_completion()'s.
  [[nodiscard]] virtual Result<BackendServer> examine(const BackendCall& call, const BackendNeeds& needs,
                                                      Duration limit);

  /// Each token's version comes with the answer. Otherwise installed() has to vouch for it. Known from examine() on.
  [[nodiscard]] virtual bool says_versions() const = 0;
  /// The server gives log-probabilities of the tokens that it sampled.
  [[nodiscard]] virtual bool has_log_probs() const { return true; }
  /// The server follows versions by itself, and install() waits for it.
  [[nodiscard]] virtual bool installs_itself() const { return false; }
  /// Adapters that the server has side by side, at most, each by a name of its own; a version is one of them, and
  /// install() is not used. 0: versions are whole models. Known from examine() on.
  [[nodiscard]] virtual std::size_t adapters_max() const { return 0; }

  /// `adapter`: the name of the one that answers; "": none.
  [[nodiscard]] virtual HttpCall completion(const EngineRequest& request, const std::string& adapter) const = 0;
  /// Errors: kBusy (the server is overloaded or broken: 429, 5xx, or it ended the answer; it has no such adapter),
  /// kUnsupported (it has no such route), kInvalidArgument (it refuses the request), kCorrupt (the answer is nonsense:
  /// what of it, and why).
  [[nodiscard]] virtual Result<BackendAnswer> read_completion(const HttpResponse& response,
                                                              const EngineRequest& request,
                                                              const std::string& adapter) const = 0;
  /// Has the server load a version, within `limit`. Harmless if repeated. After an error nobody knows which weights the
  /// server has, and it stays paused where it can be. Gives the version that it has now. Errors: those of `call` (no
  /// answer), and as read_completion()'s.
  [[nodiscard]] virtual Result<Version> install(FileSystem& files, const BackendCall& call, const BackendInstall& order,
                                                Duration limit) = 0;
  /// The version that the server says it has; kNoVersion if that is none that install() gave it. Errors: as install().
  [[nodiscard]] virtual Result<Version> installed(const BackendCall& call, Duration limit) = 0;
  /// Has the server generate nothing until the next install() or restore(), as its weights are wrong. Nothing where it
  /// has no such route. Errors: as install().
  [[nodiscard]] virtual Status hold(const BackendCall& call, Duration limit);
  /// Has the server load what it was started with, and go on: after an install that failed, with no version before it.
  /// Nothing where it has no such route. Errors: as install().
  [[nodiscard]] virtual Status restore(const BackendCall& call, Duration limit);

  // With adapters_max(). A name stands for one content for ever, so repeating a call is harmless. Errors: as install();
  // kUnsupported, where adapters_max() is 0.
  /// Has the server load the adapter in `directory`, which it may read again later. What it generates goes on
  /// meanwhile.
  [[nodiscard]] virtual Status load_adapter(const BackendCall& call, const std::string& name,
                                            const std::filesystem::path& directory, Duration limit);
  /// No request may use it. Nothing where the server has no such.
  [[nodiscard]] virtual Status unload_adapter(const BackendCall& call, const std::string& name, Duration limit);
  [[nodiscard]] virtual Result<bool> has_adapter(const BackendCall& call, const std::string& name, Duration limit);

 protected:
  /// Asks installed() every `interval` until it is `version` or a later one, which is the result. Sleeps in between.
  /// Errors: those of installed(); kTimedOut (not before `deadline`).
  [[nodiscard]] Result<Version> wait_until_installed(const BackendCall& call, Version version, Duration interval,
                                                     Instant deadline);
};

[[nodiscard]] std::unique_ptr<BackendProtocol> make_backend_protocol(BackendKind kind, BackendProtocolOptions options);

}  // namespace weightcast
