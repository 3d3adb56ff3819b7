// `weightcast-engine serve`, which follows versions of its host's daemon by itself (worker/serve).
#include <fmt/format.h>

#include <utility>

#include "base/json_text.h"
#include "worker/backend/backend_json.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

class WeightcastProtocol final : public BackendProtocol {
 public:
  explicit WeightcastProtocol(BackendProtocolOptions options) : options_(std::move(options)) {}

  bool says_versions() const override { return true; }
  HttpCall completion(const EngineRequest& request) const override {
    return completions_call(request, request.seed, options_.model, true);
  }
  Result<BackendAnswer> read_completion(const HttpResponse& response, const EngineRequest& request) const override {
    WC_ASSIGN(const Json choice, read_choice("/v1/completions", response));
    WC_ASSIGN(BackendAnswer answer, read_choice_tokens(choice, request, options_.vocab_size, true));
    const auto wrong = [&] {
      return fail(Errc::kCorrupt, Op::kReceive,
                  fmt::format("the server's answer: version_runs does not divide its {} tokens", answer.tokens.size()));
    };
    const Json runs = choice.value("version_runs", Json());
    std::size_t next = 0;
    for (const Json& run : runs) {
      const bool fits = run.is_array() && run.size() == 2 && run[0].is_number_unsigned() &&
                        run[1].is_number_unsigned() && run[1].get<std::uint64_t>() <= answer.tokens.size() - next;
      if (!fits) return wrong();
      for (const std::size_t end = next + run[1].get<std::size_t>(); next < end; ++next) {
        answer.tokens[next].version = Version{run[0].get<std::uint64_t>()};
      }
    }
    if (next != answer.tokens.size()) return wrong();
    return answer;
  }

  Result<Version> installed(const BackendCall& call, Duration limit) override {
    WC_ASSIGN(const Json json,
              read_backend_json("/get_weight_version", call({.target = "/get_weight_version"}, limit)));
    return read_version_label(json.value("weight_version", Json()));
  }

 private:
  const BackendProtocolOptions options_;
};

}  // namespace

std::unique_ptr<BackendProtocol> make_weightcast_protocol(BackendProtocolOptions options) {
  return std::make_unique<WeightcastProtocol>(std::move(options));
}

}  // namespace weightcast
