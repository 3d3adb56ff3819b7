#include "tests/transport/archive/object_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>

namespace weightcast {
namespace {

constexpr std::string_view kPrefix = "/arch/";

bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string etag_of(const std::string& bytes) { return fmt::format("\"{:x}\"", std::hash<std::string>()(bytes)); }

/// Reads one request; nothing when the connection has ended.
std::optional<ObjectServer::Request> read_request(int fd, std::string& buffer) {
  const auto more = [&] {
    char piece[65536];
    const ssize_t got = ::recv(fd, piece, sizeof piece, 0);
    if (got > 0) buffer.append(piece, static_cast<std::size_t>(got));
    return got > 0;
  };
  std::size_t end = 0;
  while ((end = buffer.find("\r\n\r\n")) == buffer.npos) {
    if (!more()) return std::nullopt;
  }
  ObjectServer::Request request;
  std::string_view head(buffer.data(), end + 2);
  const std::string_view first = head.substr(0, head.find("\r\n"));
  request.method = first.substr(0, first.find(' '));
  request.target = first.substr(request.method.size() + 1, first.rfind(' ') - request.method.size() - 1);
  head.remove_prefix(first.size() + 2);
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    std::string name(line.substr(0, line.find(':')));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request.headers[name] = line.substr(std::min(line.size(), line.find(':') + 2));
    head.remove_prefix(line.size() + 2);
  }
  buffer.erase(0, end + 4);
  const auto length = request.headers.find("content-length");
  const std::size_t body_bytes = length == request.headers.end() ? 0 : std::stoull(length->second);
  while (buffer.size() < body_bytes) {
    if (!more()) return std::nullopt;
  }
  request.body = buffer.substr(0, body_bytes);
  buffer.erase(0, body_bytes);
  return request;
}

}  // namespace

ObjectServer::ObjectServer() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(listener_, 64), 0);
  EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

ObjectServer::~ObjectServer() {
  ended_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
}

void ObjectServer::fail_next(std::deque<Fault> faults) {
  const std::lock_guard lock(mutex_);
  faults_ = std::move(faults);
}

void ObjectServer::fail_on(const std::string& method, const std::string& part, Fault fault) {
  const std::lock_guard lock(mutex_);
  awaited_.push_back({method, part, fault});
}

std::vector<ObjectServer::Request> ObjectServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::map<std::string, std::string> ObjectServer::objects() const {
  const std::lock_guard lock(mutex_);
  return objects_;
}

void ObjectServer::put(const std::string& name, const std::string& bytes) {
  const std::lock_guard lock(mutex_);
  objects_[name] = bytes;
}

void ObjectServer::accept_all() {
  for (;;) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const std::lock_guard lock(mutex_);
    open_.push_back(fd);
    threads_.emplace_back([this, fd] { serve(fd); });
    if (ended_) ::shutdown(fd, SHUT_RDWR);
  }
}

void ObjectServer::serve(int fd) {
  std::string buffer;
  while (auto request = read_request(fd, buffer)) {
    if (!answer(fd, *request)) break;
  }
  const std::lock_guard lock(mutex_);
  std::erase(open_, fd);
  ::close(fd);
}

bool ObjectServer::answer(int fd, const Request& request) {
  Fault fault = Fault::kNone;
  std::string body, etag;
  bool found = false;
  const std::string name =
      request.target.starts_with(kPrefix) ? request.target.substr(kPrefix.size()) : "outside " + request.target;
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    if (!faults_.empty()) {
      fault = faults_.front();
      faults_.pop_front();
    }
    const auto awaited = std::ranges::find_if(awaited_, [&](const Awaited& each) {
      return each.method == request.method && request.target.find(each.part) != request.target.npos;
    });
    if (awaited != awaited_.end()) {
      fault = awaited->fault;
      awaited_.erase(awaited);
    }
    if (request.method == "PUT" && fault == Fault::kNone) objects_[name] = request.body;
    if (const auto at = objects_.find(name); at != objects_.end()) {
      found = true;
      body = at->second;
      etag = etag_of(body);
    }
  }
  const auto head = [&](const std::string& status, std::size_t size, const std::string& more = "") {
    return send_all(fd, fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n{}\r\n", status, size, more));
  };
  switch (fault) {
    case Fault::kDrop: return false;
    case Fault::kUnavailable: return head("503 Slow Down", 0);
    case Fault::kMoved: return head("301 Moved", 0, "Location: http://127.0.0.1:1/\r\n");
    case Fault::kForbidden: {
      const std::string why = "<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>KEYID</AWSAccessKeyId></Error>";
      return head("403 Forbidden", why.size()) && send_all(fd, why);
    }
    default: break;
  }
  const auto wait_until_given_up = [&] {
    char byte = 0;
    static_cast<void>(::recv(fd, &byte, 1, 0));
    return false;
  };
  if (request.method == "PUT") {
    return fault == Fault::kNone ? head("200 OK", 0) : fault == Fault::kStill && wait_until_given_up();
  }
  if (!found) return head("404 Not Found", 0);
  if (request.method == "HEAD") return head("200 OK", body.size());
  const auto range = request.headers.find("range");
  if (const auto match = request.headers.find("if-match"); match != request.headers.end() && match->second != etag) {
    return head("412 Precondition Failed", 0);
  }
  std::string status = "200 OK", more = "ETag: " + (fault == Fault::kOtherEtag ? "\"other\"" : etag) + "\r\n";
  if (range != request.headers.end() && fault != Fault::kWhole) {
    std::size_t begin = 0, end = 0;
    if (std::sscanf(range->second.c_str(), "bytes=%zu-%zu", &begin, &end) != 2 || begin > end || end >= body.size()) {
      return head("416 Range Not Satisfiable", 0);
    }
    if (fault == Fault::kOtherRange) --begin, --end;
    const std::size_t all = body.size() + (fault == Fault::kOtherSize ? 1 : 0);
    more += fmt::format("Content-Range: bytes {}-{}/{}\r\n", begin, end, all);
    status = "206 Partial Content";
    body = body.substr(begin, end - begin + 1);
  }
  if (!head(status, body.size(), more)) return false;
  if (fault == Fault::kStill) return wait_until_given_up();
  if (fault == Fault::kCut) return send_all(fd, std::string_view(body).substr(0, body.size() / 2)) && false;
  return send_all(fd, body);
}

}  // namespace weightcast
