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

/// One call to the server. Errors: those of HttpClient::call().
using BackendCall = std::function<Result<HttpResponse>(const HttpCall& call, Duration limit)>;

/// An answer as the server gave it. Tokens have version kNoVersion where the server does not say it.
struct BackendAnswer {
  std::vector<EngineToken> tokens;
  FinishReason finished = FinishReason::kLength;
};

/// What a run asks of a server that generates.
struct BackendNeeds {
  SamplingOptions sampling = {};     ///< of every request
  std::uint64_t context_tokens = 0;  ///< of a prompt and its answer together, at most
  /// The learner takes the sampler's log-probabilities: log softmax(logits / temperature) over the whole vocabulary.
  bool log_probs = true;
};

struct BackendProtocolOptions {
  std::string model;  ///< in requests; "": they name none
  /// Versions are adapters, which the server follows under the name of `model`, above the model that it was started
  /// with. kVllm.
  bool is_adapter = false;
  std::uint64_t vocab_size = 0;               ///< of the model: ids are below it
  std::uint64_t positions_max = 0;            ///< of the model: an answer may end there; 0: without bound
  std::filesystem::path blocks;               ///< kParallax: where blocks are written
  std::uint64_t block_bytes_max = 64 * kMiB;  ///< kParallax: of a block's tensor; a row may exceed it
};

/// How one kind of server is spoken to. Has no connection of its own. Any thread may use it, as long as
/// nobody else is in examine() or install(). docs/WORKERS.md names the routes and fields, and the releases that
/// they were read from.
class BackendProtocol {
 public:
  virtual ~BackendProtocol() = default;

  /// Asks the server what it is and how it was started. Comes before everything else, and again after the server may
  /// have been started anew. Errors: kUnsupported and kInvalidArgument, which say what of it does not do for `needs`,
  /// and the flag to start it with; those of `call`; kBusy, kCorrupt as read_completion()'s.
  [[nodiscard]] virtual Status examine(const BackendCall& call, const BackendNeeds& needs, Duration limit);

  /// Each token's version comes with the answer. Otherwise installed() before and after it has to vouch for it. Known
  /// from examine() on.
  [[nodiscard]] virtual bool says_versions() const = 0;
  /// The server gives log-probabilities of the tokens that it sampled.
  [[nodiscard]] virtual bool has_log_probs() const { return true; }
  /// The server follows no daemon: install() tells it.
  [[nodiscard]] virtual bool is_told() const { return false; }

  [[nodiscard]] virtual HttpCall completion(const EngineRequest& request) const = 0;
  /// Errors: kBusy (the server is overloaded or broken: 429, 5xx, or it ended the answer), kUnsupported (it has no such
  /// route), kInvalidArgument (it refuses the request), kCorrupt (the answer is nonsense: what of it, and why).
  [[nodiscard]] virtual Result<BackendAnswer> read_completion(const HttpResponse& response,
                                                              const EngineRequest& request) const = 0;
  /// The version that the server says it has; kNoVersion if it has none. Errors: those of `call` (no answer), and as
  /// read_completion()'s.
  [[nodiscard]] virtual Result<Version> installed(const BackendCall& call, Duration limit) = 0;
  /// With is_told(): has the server load the version whose files `directory` has, within `limit`. Harmless if repeated.
  /// Errors: as installed(); those of reading and writing files; kUnsupported.
  [[nodiscard]] virtual Status install(FileSystem& files, const BackendCall& call, Version version,
                                       const std::filesystem::path& directory, Duration limit);
};

[[nodiscard]] std::unique_ptr<BackendProtocol> make_backend_protocol(BackendKind kind, BackendProtocolOptions options);

}  // namespace weightcast
