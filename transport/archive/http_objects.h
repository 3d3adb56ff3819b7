#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "transport/archive/http_client.h"
#include "transport/archive/object_store.h"

namespace weightcast {

/// Makes requests acceptable to a server.
class RequestAuthor {
 public:
  virtual ~RequestAuthor() = default;
  /// The URL of an object.
  [[nodiscard]] virtual std::string url_of(const std::string& name) const = 0;
  /// The headers to add to a request for an object, whose `headers` are signed as well. Blocks where credentials must
  /// be asked for. Errors: those of who has them.
  [[nodiscard]] virtual Result<std::vector<std::string>> headers_for(std::string_view method, const std::string& name,
                                                                     const std::vector<std::string>& headers,
                                                                     Bytes body) = 0;
};

/// A server's path; netrc's name and password, where it has any.
class PlainRequests final : public RequestAuthor {
 public:
  /// Errors: kInvalidArgument (a URL with a query, or with a password, which messages would show).
  [[nodiscard]] static Result<std::unique_ptr<PlainRequests>> make(std::string url);

  [[nodiscard]] std::string url_of(const std::string& name) const override { return url_ + name; }
  [[nodiscard]] Result<std::vector<std::string>> headers_for(std::string_view, const std::string&,
                                                             const std::vector<std::string>&, Bytes) override {
    return std::vector<std::string>();
  }

 private:
  explicit PlainRequests(std::string url) : url_(std::move(url)) {}
  const std::string url_;  // with '/' at its end
};

/// Objects of an HTTP server: HEAD, GET with Range, and PUT. What may pass is tried again, ever more rarely: no
/// connection, one that ends or stands still, 408, 429 and 5xx. A range goes on where it was cut. An answer that is no
/// such range, or of another object than the range before (by ETag), is kCorrupt.
class HttpObjects final : public ObjectStore {
 public:
  HttpObjects(std::unique_ptr<StorageHttpClient> client, std::unique_ptr<RequestAuthor> author)
      : client_(std::move(client)), author_(std::move(author)) {}

  [[nodiscard]] std::string place_of(const std::string& name) const override { return author_->url_of(name); }
  [[nodiscard]] Result<std::optional<std::uint64_t>> size_of(const std::string& name) override;
  [[nodiscard]] Result<std::string> read(const std::string& name, std::uint64_t bytes_max) override;
  [[nodiscard]] Status read_range(const std::string& name, std::uint64_t object_bytes, std::uint64_t offset,
                                  std::uint64_t size, const Sink& sink) override;
  [[nodiscard]] Status write(const std::string& name, Bytes bytes) override;
  void stop() override { client_->stop(); }

 private:
  /// One request. What the server refuses is an error; `sink` gets the body of an answer with status `wanted` alone.
  [[nodiscard]] Result<HttpAnswer> attempt(StorageHttpRequest::Method method, const std::string& name,
                                           std::vector<std::string> headers, Bytes body, long wanted,
                                           const StorageHttpClient::Sink& sink);
  /// Calls `once` until it succeeds, fails for good, or has failed too often. `moved`: whether it has come further, so
  /// that attempts count anew.
  [[nodiscard]] Status with_retries(
      const std::string& name, const std::function<Status()>& once,
      const std::function<bool()>& moved = [] { return false; });

  const std::unique_ptr<StorageHttpClient> client_;
  const std::unique_ptr<RequestAuthor> author_;
  std::mutex mutex_;                          // guards `etags_`
  std::map<std::string, std::string> etags_;  // of objects of which a range was read
};

}  // namespace weightcast
