// Sokoban whose every answer takes a while: a task that is a program (docs/TASKS.md has the protocol). It sleeps, and
// so takes no processor time. Task options: those of sokoban; delay_median_s and delay_sigma, of a lognormal
// distribution.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "base/entropy.h"
#include "base/json_text.h"
#include "base/time.h"
#include "trainer/tasks/program/program_messages.h"
#include "trainer/tasks/registry.h"

namespace weightcast::bench {
namespace {

using Json = nlohmann::json;

Error refuse(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(why)); }

/// Takes a number of that name out of `options`.
Status take(TaskOptions& options, const std::string& name, double& out) {
  const auto found = options.find(name);
  if (found == options.end()) return {};
  const std::string text = std::move(found->second);
  options.erase(found);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error == std::errc() && end == text.data() + text.size() && out >= 0 && out <= 60) return {};
  return refuse(fmt::format("{} = '{}' is no number from 0 to 60", name, text));
}

/// Answers the calls of the process that has started this one. Calls of the wrong form throw what nlohmann throws.
class SlowSokoban {
 public:
  Result<Json> answer(const Json& call) {
    const auto kind = call.at("call").get<std::string>();
    if (kind == "hello") return hello(call);
    if (task_ && kind == "reset") return reset(call);
    if (task_ && kind == "step") return step(call);
    return refuse(fmt::format("no call '{}' now", kind));
  }
  /// How long the environment takes for an answer.
  Duration delay() {
    return from_seconds(std::lognormal_distribution<double>(0, delay_sigma_)(random_) * delay_median_s_);
  }

 private:
  Result<Json> hello(const Json& call) {
    auto options = call.at("options").get<TaskOptions>();
    WC_TRY(take(options, "delay_median_s", delay_median_s_));
    WC_TRY(take(options, "delay_sigma", delay_sigma_));
    WC_ASSIGN(task_, make_task("sokoban", options));
    return Json{{"protocol", kTaskProtocolVersion},
                {"name", "slow_sokoban"},
                {"version", "1"},
                {"offers", "episodes"},
                {"metadata", Json::array({"level"})}};
  }

  Result<Json> reset(const Json& call) {
    for (const Json& closed : call.at("closed")) episodes_.erase(closed.get<std::uint64_t>());
    auto environment = task_->make_environment();
    WC_ASSIGN(const Prompt prompt, environment->reset(call.at("seed").get<std::uint64_t>()));
    episodes_[call.at("episode").get<std::uint64_t>()] = std::move(environment);
    Json messages = Json::array();
    for (const ChatMessage& message : prompt.messages) {
      messages.push_back({{"role", message.role}, {"content", message.content}});
    }
    return Json{{"messages", std::move(messages)}, {"metadata", prompt.metadata}};
  }

  Result<Json> step(const Json& call) {
    const auto found = episodes_.find(call.at("episode").get<std::uint64_t>());
    if (found == episodes_.end()) return refuse("no such episode");
    WC_ASSIGN(const StepResult result, found->second->step(call.at("action").get<std::string>()));
    return Json{{"observation", result.observation},
                {"reward", result.reward},
                {"done", result.done},
                {"success", result.success}};
  }

  std::mt19937_64 random_{host_entropy()};
  double delay_median_s_ = 0, delay_sigma_ = 0;
  std::unique_ptr<Task> task_;
  std::map<std::uint64_t, std::unique_ptr<Environment>> episodes_;  // they must not outlive the task
};

/// One line's answer, without a throw.
Json answer_to(SlowSokoban& game, const Json& call) {
  Json answer{{"id", call.is_object() && call.contains("id") ? call["id"] : Json()}};
  try {
    const Result<Json> answered = game.answer(call);
    if (answered.has_value()) {
      answer.update(*answered);
    } else {
      answer["error"] = answered.error().detail;
    }
  } catch (const Json::exception& error) {
    answer["error"] = error.what();
  }
  return answer;
}

}  // namespace
}  // namespace weightcast::bench

int main() {
  weightcast::bench::SlowSokoban game;
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json call = weightcast::parse_json(line);
    const std::string answer = weightcast::json_text(weightcast::bench::answer_to(game, call)) + "\n";
    if (call.is_object() && call.value("call", "") == "step") std::this_thread::sleep_for(game.delay());
    if (std::fputs(answer.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return 1;
  }
  return 0;
}
