#include "transport/archive/http_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/entropy.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::chrono::seconds kBackoffMax{10};
constexpr std::size_t kRefusalBytesMax = 4096;
constexpr std::size_t kShownBytesMax = 80;

/// S3 says why in XML. All but the code may repeat what was signed.
std::string code_in(std::string_view body) {
  constexpr std::string_view kBegin = "<Code>";
  const auto begin = body.find(kBegin);
  if (begin == body.npos) return "";
  body.remove_prefix(begin + kBegin.size());
  return " (" + printable(cut_text(body.substr(0, body.find('<')), kShownBytesMax)) + ")";
}

bool may_pass(long status) { return status == 408 || status == 429 || status >= 500; }

Error refused(const HttpAnswer& answer, std::string_view body, Op op) {
  const long status = answer.status;
  const std::string text = fmt::format("the server answers {}{}", status, code_in(body));
  if (status == 404) return fail(Errc::kNotFound, op, "there is no such object");
  if (status == 401 || status == 403) {
    return fail(Errc::kNotAllowed, op,
                text + "; give this user the right to list, read and write there, or other credentials");
  }
  if (status == 412) return fail(Errc::kCorrupt, op, "it was replaced while it was read; begin again");
  if (status == 507) return fail(Errc::kNoSpace, op, text);
  if (status / 100 == 3) return fail(Errc::kInvalidArgument, op, text + "; give the address that it leads to");
  if (may_pass(status)) return fail(Errc::kBusy, op, text);
  return fail(Errc::kIo, op, text);
}

/// "bytes 0-99/1000": the range and the size of the whole object.
bool is_range(std::string_view text, std::uint64_t offset, std::uint64_t size, std::uint64_t object_bytes) {
  return text == fmt::format("bytes {}-{}/{}", offset, offset + size - 1, object_bytes);
}

}  // namespace

Result<std::unique_ptr<PlainRequests>> PlainRequests::make(std::string url) {
  const auto host = url.find("://") + 3;
  if (url.find_first_of("?#") != url.npos || url.substr(0, url.find('/', host)).find('@') != url.npos) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "a place has no query, name or password; names and passwords belong in ~/.netrc");
  }
  if (host == url.size() || url.find_first_of(" \t\r\n") != url.npos) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, printable(url) + ": give https://HOST/PATH");
  }
  if (!url.ends_with('/')) url += '/';
  return std::unique_ptr<PlainRequests>(new PlainRequests(std::move(url)));
}

Status HttpObjects::with_retries(const std::string& name, const std::function<Status()>& once,
                                 const std::function<bool()>& moved) {
  const StorageHttpLimits& limits = client_->limits();
  // Several processes that a server has refused at once come back one after the other.
  thread_local std::minstd_rand random{static_cast<std::uint_fast32_t>(host_entropy())};
  for (unsigned tried = 1;; ++tried) {
    Status done = once();
    if (done.has_value()) return done;
    const Errc code = done.error().code;
    const bool passes = code == Errc::kBusy || code == Errc::kTimedOut || code == Errc::kClosed;
    if (moved()) tried = 1;
    if (!passes || tried >= limits.attempts || client_->stopped()) {
      if (passes) done.error().detail += fmt::format("; tried {} times", tried);
      if (code == Errc::kBusy || code == Errc::kClosed) done.error().code = Errc::kIo;
      return about(place_of(name), std::move(done.error()));
    }
    const auto wait =
        std::min<std::chrono::milliseconds>(kBackoffMax, limits.backoff * (1u << std::min(tried - 1, 8u)));
    std::this_thread::sleep_for(wait / 2 + wait * (random() % 1000) / 2000);
  }
}

Result<HttpAnswer> HttpObjects::attempt(StorageHttpRequest::Method method, const std::string& name,
                                        std::vector<std::string> headers, Bytes body, long wanted,
                                        const StorageHttpClient::Sink& sink) {
  const bool put = method == StorageHttpRequest::Method::kPut;
  const std::string_view verb = put ? "PUT" : method == StorageHttpRequest::Method::kHead ? "HEAD" : "GET";
  WC_ASSIGN(std::vector<std::string> added, author_->headers_for(verb, name, headers, body));
  headers.insert(headers.end(), added.begin(), added.end());
  std::string refusal;
  bool in_body = false;
  Result<HttpAnswer> answer = client_->perform(
      {method, author_->url_of(name), std::move(headers), body}, [&](const HttpAnswer& head, Bytes piece) {
        if (head.status == wanted) return in_body = true, sink(head, piece);
        const std::string_view text = chars_of(piece);
        refusal += text.substr(0, kRefusalBytesMax - std::min(kRefusalBytesMax, refusal.size()));
        return Status();
      });
  if (!answer.has_value()) {
    // A connection's failure may pass.
    if (answer.error().code == Errc::kIo) answer.error().code = Errc::kClosed;
    return answer.error();
  }
  if (answer->status == wanted || (put && answer->status / 100 == 2)) return answer;
  if (wanted == 206 && answer->status == 200) {
    return fail(Errc::kUnsupported, Op::kReceive, "the server sends the whole object where a range was asked for");
  }
  return refused(*answer, refusal, put ? Op::kSend : Op::kReceive);
}

Result<std::optional<std::uint64_t>> HttpObjects::size_of(const std::string& name) {
  std::optional<std::uint64_t> size;
  WC_TRY(with_retries(name, [&]() -> Status {
    const Result<HttpAnswer> answer = attempt(StorageHttpRequest::Method::kHead, name, {}, {}, 200,
                                              [](const HttpAnswer&, Bytes) { return Status(); });
    if (!answer.has_value()) return answer.error().code == Errc::kNotFound ? Status() : Status(answer.error());
    size = parse_number<std::uint64_t>(answer->header("content-length"));
    if (!size) return fail(Errc::kUnsupported, Op::kReceive, "the server does not say how large it is");
    return {};
  }));
  return size;
}

Result<std::string> HttpObjects::read(const std::string& name, std::uint64_t bytes_max) {
  std::string text;
  const auto once = [&]() -> Status {
    text.clear();
    const auto sink = [&](const HttpAnswer&, Bytes piece) -> Status {
      if (text.size() + piece.size() > bytes_max) {
        return fail(Errc::kTooLarge, Op::kReceive, fmt::format("it has more than {} bytes", bytes_max));
      }
      text += chars_of(piece);
      return {};
    };
    const Result<HttpAnswer> answer = attempt(StorageHttpRequest::Method::kGet, name, {}, {}, 200, sink);
    if (!answer.has_value()) return answer.error();
    return {};
  };
  WC_TRY(with_retries(name, once));
  return text;
}

Status HttpObjects::read_range(const std::string& name, std::uint64_t object_bytes, std::uint64_t offset,
                               std::uint64_t size, const Sink& sink) {
  std::uint64_t done = 0, done_before = 0;
  const auto once = [&]() -> Status {
    if (done == size) return {};
    std::string etag;
    {
      const std::lock_guard lock(mutex_);
      etag = etags_[name];
    }
    const std::uint64_t begin = offset + done, left = size - done;
    std::vector<std::string> headers{fmt::format("Range: bytes={}-{}", begin, begin + left - 1)};
    // Of a weak one no server says that it matches.
    if (!etag.empty() && !etag.starts_with("W/")) headers.push_back("If-Match: " + etag);
    bool checked = false;
    const auto check = [&](const HttpAnswer& head) -> Status {
      if (!is_range(head.header("content-range"), begin, left, object_bytes)) {
        return fail(Errc::kCorrupt, Op::kReceive,
                    fmt::format("the server sends '{}', and bytes {}-{} of {} were asked for",
                                printable(cut_text(head.header("content-range"), kShownBytesMax)), begin,
                                begin + left - 1, object_bytes));
      }
      const std::string found = head.header("etag");
      if (!etag.empty() && found != etag) {
        return fail(Errc::kCorrupt, Op::kReceive, "it was replaced while it was read; begin again");
      }
      const std::lock_guard lock(mutex_);
      etags_[name] = found;
      return {};
    };
    const auto take = [&](const HttpAnswer& head, Bytes piece) -> Status {
      if (!std::exchange(checked, true)) WC_TRY(check(head));
      if (piece.size() > size - done)
        return fail(Errc::kCorrupt, Op::kReceive, "the server sends more than was asked for");
      done += piece.size();
      return sink(piece);
    };
    const Result<HttpAnswer> answer =
        attempt(StorageHttpRequest::Method::kGet, name, std::move(headers), {}, 206, take);
    if (!answer.has_value()) return answer.error();
    if (done < size) return fail(Errc::kClosed, Op::kReceive, "the server's answer ends early");
    return {};
  };
  return with_retries(name, once, [&] { return std::exchange(done_before, done) != done; });
}

Status HttpObjects::write(const std::string& name, Bytes bytes) {
  return with_retries(name, [&]() -> Status {
    const Result<HttpAnswer> answer = attempt(StorageHttpRequest::Method::kPut, name, {}, bytes, 200,
                                              [](const HttpAnswer&, Bytes) { return Status(); });
    if (!answer.has_value()) return answer.error();
    return {};
  });
}

}  // namespace weightcast
