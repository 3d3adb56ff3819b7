#include "transport/archive/http_client.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <optional>
#include <utility>

namespace weightcast {
namespace {

constexpr const char* kLibrary = "libcurl.so.4";
constexpr long kSlowBytesPerS = 1024;
constexpr long kBufferBytes = 256 * 1024;
constexpr std::size_t kHeadersMax = 200;

}  // namespace

/// The functions of libcurl that are used. The library stays loaded as long as the process lives.
struct StorageHttpClient::Library {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) init = nullptr;
  decltype(&curl_easy_setopt) set = nullptr;
  decltype(&curl_easy_perform) perform = nullptr;
  decltype(&curl_easy_getinfo) get = nullptr;
  decltype(&curl_easy_reset) reset = nullptr;
  decltype(&curl_easy_cleanup) cleanup = nullptr;
  decltype(&curl_easy_strerror) text_of = nullptr;
  decltype(&curl_slist_append) append = nullptr;
  decltype(&curl_slist_free_all) free_all = nullptr;

  static Result<std::shared_ptr<const Library>> load() {
    void* handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      return fail(Errc::kUnsupported, Op::kOpen,
                  fmt::format("{}: {}; install it (Debian: libcurl4; RHEL: libcurl)", kLibrary, ::dlerror()));
    }
    auto library = std::make_shared<Library>();
    const char* missing = nullptr;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
      if (function == nullptr) missing = name;
    };
    find(library->global_init, "curl_global_init");
    find(library->init, "curl_easy_init");
    find(library->set, "curl_easy_setopt");
    find(library->perform, "curl_easy_perform");
    find(library->get, "curl_easy_getinfo");
    find(library->reset, "curl_easy_reset");
    find(library->cleanup, "curl_easy_cleanup");
    find(library->text_of, "curl_easy_strerror");
    find(library->append, "curl_slist_append");
    find(library->free_all, "curl_slist_free_all");
    if (missing != nullptr) {
      return fail(Errc::kUnsupported, Op::kOpen,
                  fmt::format("{}: it has no {}; install a newer one", kLibrary, missing));
    }
    if (library->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
      return fail(Errc::kUnsupported, Op::kOpen, fmt::format("{}: it cannot be initialised", kLibrary));
    }
    return std::shared_ptr<const Library>(std::move(library));
  }
};

namespace {

/// One request under way.
struct Exchange {
  const StorageHttpRequest& request;
  const StorageHttpClient::Sink& sink;
  HttpAnswer answer;
  std::size_t sent = 0;
  std::optional<Error> sink_error;
};

std::size_t take_header(char* data, std::size_t, std::size_t size, void* user) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  std::string_view line(data, size);
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {  // also of a head that another one follows, such as 100 Continue
    exchange.answer = {};
    const auto space = line.find(' ');
    if (space != line.npos) exchange.answer.status = std::atol(std::string(line.substr(space + 1)).c_str());
    return size;
  }
  const auto colon = line.find(':');
  if (colon == line.npos || exchange.answer.headers.size() >= kHeadersMax) return size;
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  line.remove_prefix(colon + 1);
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  exchange.answer.headers[name] = line;
  return size;
}

std::size_t take_body(char* data, std::size_t, std::size_t size, void* user) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  Status taken = exchange.sink(exchange.answer, Bytes(reinterpret_cast<const std::byte*>(data), size));
  if (taken.has_value()) return size;
  exchange.sink_error = std::move(taken.error());
  return size == 0 ? 1 : 0;
}

std::size_t give_body(char* into, std::size_t, std::size_t size, void* user) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  const Bytes left = exchange.request.body.subspan(exchange.sent);
  const std::size_t given = std::min(size, left.size());
  std::memcpy(into, left.data(), given);
  exchange.sent += given;
  return given;
}

/// A connection that was kept turned out to be closed: the body begins anew.
int seek_body(void* user, curl_off_t offset, int origin) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  if (origin != SEEK_SET || offset < 0 || std::uint64_t(offset) > exchange.request.body.size())
    return CURL_SEEKFUNC_FAIL;
  exchange.sent = static_cast<std::size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

/// Called about once a second, and more often while something moves.
int look_whether_stopped(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return *static_cast<const std::atomic<bool>*>(user) ? 1 : 0;
}

Errc code_of(CURLcode code) {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT: return Errc::kTimedOut;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE: return Errc::kNotAllowed;
    default: return Errc::kIo;
  }
}

}  // namespace

StorageHttpClient::StorageHttpClient(StorageHttpLimits limits, std::string ca_bundle,
                                     std::shared_ptr<const Library> library)
    : limits_(limits), ca_bundle_(std::move(ca_bundle)), library_(std::move(library)) {}

Result<std::unique_ptr<StorageHttpClient>> StorageHttpClient::make(StorageHttpLimits limits, std::string ca_bundle) {
  WC_ASSIGN(auto library, Library::load());
  return std::unique_ptr<StorageHttpClient>(new StorageHttpClient(limits, std::move(ca_bundle), std::move(library)));
}

StorageHttpClient::~StorageHttpClient() {
  for (void* handle : idle_) library_->cleanup(handle);
}

void* StorageHttpClient::take_handle() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return library_->init();
  void* handle = idle_.back();
  idle_.pop_back();
  return handle;
}

Result<HttpAnswer> StorageHttpClient::perform(const StorageHttpRequest& request, const Sink& sink) {
  if (stopped_) return fail(Errc::kIo, Op::kReceive, "it was stopped");
  void* handle = take_handle();
  if (handle == nullptr) return fail(Errc::kIo, Op::kOpen, fmt::format("{}: no memory", kLibrary));
  library_->reset(handle);
  Exchange exchange{request, sink, {}, 0, std::nullopt};
  std::array<char, CURL_ERROR_SIZE> why{};
  curl_slist* headers = nullptr;
  for (const std::string& header : request.headers) headers = library_->append(headers, header.c_str());
  headers = library_->append(headers, "Expect:");  // a server that refuses does so within the body's time

  bool all_set = true;
  const auto set = [&](CURLoption option, auto value) { all_set &= library_->set(handle, option, value) == CURLE_OK; };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_PATH_AS_IS, 1L);  // what was signed is what is sent
  set(CURLOPT_NETRC, long{CURL_NETRC_OPTIONAL});
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_ERRORBUFFER, why.data());
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits_.connect.count()));
  set(CURLOPT_TIMEOUT, static_cast<long>(limits_.request.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, kSlowBytesPerS);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(limits_.stalled.count()));
  set(CURLOPT_BUFFERSIZE, kBufferBytes);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &look_whether_stopped);
  set(CURLOPT_XFERINFODATA, &stopped_);
  set(CURLOPT_HEADERFUNCTION, &take_header);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_WRITEFUNCTION, &take_body);
  set(CURLOPT_WRITEDATA, &exchange);
  if (!ca_bundle_.empty()) set(CURLOPT_CAINFO, ca_bundle_.c_str());
  if (request.method == StorageHttpRequest::Method::kHead) set(CURLOPT_NOBODY, 1L);
  if (request.method == StorageHttpRequest::Method::kPut) {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_READFUNCTION, &give_body);
    set(CURLOPT_READDATA, &exchange);
    set(CURLOPT_SEEKFUNCTION, &seek_body);
    set(CURLOPT_SEEKDATA, &exchange);
  }
  const CURLcode code = all_set ? library_->perform(handle) : CURLE_UNKNOWN_OPTION;
  library_->free_all(headers);
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(handle);
  }
  if (exchange.sink_error) return std::move(*exchange.sink_error);
  if (code == CURLE_OK) return std::move(exchange.answer);
  return fail(code_of(code), request.method == StorageHttpRequest::Method::kPut ? Op::kSend : Op::kReceive,
              why[0] != '\0' ? why.data() : library_->text_of(code));
}

}  // namespace weightcast
