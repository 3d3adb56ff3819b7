#include "transport/node/members/enroll.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/text.h"
#include "proto/limits.h"
#include "proto/wire.pb.h"
#include "transport/io/net/socket_network.h"
#include "transport/io/uv_loop.h"
#include "transport/security/enrolment.h"
#include "transport/security/tls.h"

namespace weightcast {
namespace {

constexpr Duration kAnswerTimeout = std::chrono::seconds(20);
constexpr int kAttemptsMax = 8;
constexpr auto kPause = std::chrono::seconds(1);

/// One connection to the origin, and its answer.
class Attempt {
 public:
  Attempt(const EnrollOrder& order, std::string key)
      : order_(order),
        key_(std::move(key)),
        network_(loop_, {}, {}, {}, TlsContext::make_enrolling(order.token.authority)),
        timeout_(loop_, [this] {
          end(fail(Errc::kTimedOut, Op::kReceive, order_.origin.to_string() + ": the origin does not answer"));
        }) {}

  Result<std::string> run() {
    timeout_.arm(loop_.now() + kAnswerTimeout);
    dial_ = network_.dial(order_.origin, [this](Result<std::unique_ptr<FrameConnection>> made) {
      if (!made.has_value()) return end(made.error());
      connection_ = *std::move(made);
      listen();
      ask();
    });
    loop_.run();
    return *answer_;
  }

 private:
  void listen() {
    connection_->set_handlers({.on_control = [this](const std::string& body) -> Status {
                                 wire::Message message;
                                 if (!message.ParseFromString(body)) {
                                   return fail(Errc::kCorrupt, Op::kParse, "not what this protocol sends");
                                 }
                                 hear(message);
                                 return {};
                               },
                               .on_chunk = [](const ReceivedChunk&) {},
                               .on_closed = [this](const Error& why) { end(explain(why)); }});
  }

  /// Of an origin that does not enrol, the refusal speaks of a certificate.
  static Error explain(const Error& why) {
    if (why.code != Errc::kNotAllowed) return why;
    return fail(why.code, why.op, why.detail + "; does the origin run with --enroll?");
  }

  void ask() {
    wire::Message message;
    wire::Enroll* enroll = message.mutable_enroll();
    enroll->set_protocol(kProtocolVersionMin);
    enroll->set_protocol_max(kProtocolVersion);
    enroll->set_token_id(std::string(chars_of(order_.token.id)));
    enroll->set_token_secret(std::string(chars_of(order_.token.secret)));
    enroll->set_name(order_.name);
    enroll->set_host_name(order_.host_name);
    enroll->set_key(key_);
    connection_->send_control(message.SerializeAsString());
  }

  void hear(const wire::Message& message) {
    if (message.has_enrolled()) return end(message.enrolled().certificates());
    if (!message.has_bye()) return;
    const Errc code = message.bye().code() == static_cast<std::uint32_t>(Errc::kBusy) ? Errc::kBusy : Errc::kNotAllowed;
    const std::string reason(cut_text(message.bye().reason(), kReasonBytesMax));
    end(fail(code, Op::kVerify, fmt::format("{} refuses: {}", order_.origin.to_string(), printable(reason))));
  }

  void end(Result<std::string> answer) {
    if (answer_) return;
    answer_ = std::move(answer);
    loop_.stop();
  }

  const EnrollOrder& order_;
  const std::string key_;
  UvLoop loop_;
  SocketNetwork network_;
  std::unique_ptr<Network::Attempt> dial_;
  std::unique_ptr<FrameConnection> connection_;
  std::optional<Result<std::string>> answer_;
  Timer timeout_;
};

}  // namespace

Result<NodeKeys> enroll(const EnrollOrder& order) {
  const Applicant machine;
  Result<std::string> answer = fail(Errc::kBusy, Op::kConnect, order.origin.to_string());
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kPause);
    answer = Attempt(order, machine.key_request()).run();
    if (answer.has_value() || answer.error().code != Errc::kBusy) break;
  }
  WC_TRY(answer);
  return machine.keys_from(*answer, order.token, unix_now_s());
}

}  // namespace weightcast
