#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace weightcast {

/// A server of objects on loopback, as strict as a real one, which fails on purpose.
class ObjectServer {
 public:
  enum class Fault : std::uint8_t {
    kNone,
    kUnavailable,  ///< 503
    kCut,          ///< the connection ends within the body
    kWhole,        ///< 200 and the whole object, whatever range was asked for
    kOtherEtag,    ///< as if the object had been replaced
    kOtherRange,   ///< 206 with the bytes before
    kOtherSize,    ///< 206 of an object of another size
    kStill,        ///< the head, or of a PUT not even that, and then nothing
    kForbidden,    ///< 403, with a body as S3 has it
    kMoved,        ///< 301
    kDrop,         ///< the connection ends before an answer
  };
  struct Request {
    std::string method, target;
    std::map<std::string, std::string> headers;  ///< names in lower case
    std::string body;
  };

  ObjectServer();
  ~ObjectServer();
  ObjectServer(const ObjectServer&) = delete;
  ObjectServer& operator=(const ObjectServer&) = delete;

  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/arch"; }
  /// What the next requests get, one after the other.
  void fail_next(std::deque<Fault> faults);
  /// What the next request of that method gets whose target contains `part`.
  void fail_on(const std::string& method, const std::string& part, Fault fault);
  [[nodiscard]] std::vector<Request> requests() const;
  [[nodiscard]] std::map<std::string, std::string> objects() const;
  void put(const std::string& name, const std::string& bytes);

 private:
  void accept_all();
  void serve(int fd);
  /// Whether the connection goes on.
  bool answer(int fd, const Request& request);

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> ended_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, std::string> objects_;
  std::deque<Fault> faults_;
  struct Awaited {
    std::string method, part;
    Fault fault = Fault::kNone;
  };
  std::vector<Awaited> awaited_;
  std::vector<Request> requests_;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace weightcast
