#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"

namespace weightcast {

/// Every bound of a wait for storage.
struct StorageHttpLimits {
  std::chrono::milliseconds connect{10'000};
  std::chrono::seconds stalled{20};        ///< so long nothing, or next to nothing, may move
  std::chrono::seconds request{1800};      ///< one request with its answer
  unsigned attempts = 6;                   ///< of what may pass
  std::chrono::milliseconds backoff{500};  ///< before the second attempt; twice as long before each next one
};

struct StorageHttpRequest {
  enum class Method : std::uint8_t { kGet, kHead, kPut };
  Method method = Method::kGet;
  std::string url;
  std::vector<std::string> headers;  ///< "Name: value"
  Bytes body;                        ///< of kPut
};

struct HttpAnswer {
  long status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case

  [[nodiscard]] std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

/// Requests to HTTP servers by libcurl, which is loaded when this is made: a process that needs none never has it. Any
/// thread; each has a connection of its own, which is kept for the next request. Redirects are not followed.
class StorageHttpClient {
 public:
  /// `ca_bundle`: a file of certificates that are believed; "": the system's. Errors: kUnsupported (no libcurl.so.4).
  [[nodiscard]] static Result<std::unique_ptr<StorageHttpClient>> make(StorageHttpLimits limits, std::string ca_bundle);
  ~StorageHttpClient();
  StorageHttpClient(const StorageHttpClient&) = delete;
  StorageHttpClient& operator=(const StorageHttpClient&) = delete;

  /// `sink` gets the body as it comes, once the head is in `answer`. Blocks. Errors: those of `sink`; kTimedOut, kIo,
  /// kNotAllowed (the server's certificate): what went wrong, without the URL. Whatever the server answers is no error.
  using Sink = std::function<Status(const HttpAnswer& answer, Bytes piece)>;
  [[nodiscard]] Result<HttpAnswer> perform(const StorageHttpRequest& request, const Sink& sink);

  /// Requests under way fail within about a second, and all later ones: kIo.
  void stop() { stopped_ = true; }

  [[nodiscard]] bool stopped() const { return stopped_; }

  [[nodiscard]] const StorageHttpLimits& limits() const { return limits_; }

 private:
  struct Library;
  StorageHttpClient(StorageHttpLimits limits, std::string ca_bundle, std::shared_ptr<const Library> library);
  void* take_handle();

  const StorageHttpLimits limits_;
  const std::string ca_bundle_;
  const std::shared_ptr<const Library> library_;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;         // guards `idle_`
  std::vector<void*> idle_;  // handles that nobody uses
};

}  // namespace weightcast
