#include "tools/observe/metrics_port.h"

#include <gmock/gmock.h>

#include "tests/transport/http/raw_client.h"

namespace weightcast {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(MetricsPort, AnswersMetricsAndNothingElse) {
  const auto port = start_metrics_port({.listen = {"127.0.0.1", 0}}, [](const HttpRequest&, HttpResponder responder) {
    MetricsText text;
    add_build_info(text, "1.2.3", "learner");
    text.add("learner_step", MetricsText::Type::kGauge, "Training steps that are done.", std::uint64_t{7});
    responder.send(metrics_response(text));
  });
  ASSERT_TRUE(port.has_value()) << port.error().message();
  const auto get = [&](const std::string& path) {
    RawClient client((*port)->endpoint().port);
    EXPECT_TRUE(client.say("GET " + path + " HTTP/1.1\r\nConnection: close\r\n\r\n"));
    return client.hear_all();
  };
  const std::string metrics = get("/metrics");
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(metrics, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(metrics, HasSubstr("\nweightcast_build_info{version=\"1.2.3\",role=\"learner\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("\nweightcast_learner_step 7\n"));
  EXPECT_THAT(metrics, HasSubstr("\nprocess_open_fds "));
  EXPECT_THAT(get("/status"), StartsWith("HTTP/1.1 404"));
}

TEST(MetricsPort, DoesNotListenOpenly) {
  const auto port = start_metrics_port({.listen = {"0.0.0.0", 0}}, [](HttpRequest, HttpResponder) {});
  ASSERT_FALSE(port.has_value());
  EXPECT_THAT(port.error().message(), HasSubstr("http 0.0.0.0:0"));
}

}  // namespace
}  // namespace weightcast
