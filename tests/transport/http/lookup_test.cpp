// A name server that says nothing: what a client does meanwhile.
#include <dlfcn.h>
#include <netdb.h>

#include "tests/result_matchers.h"
#include "tests/transport/http/server_fixture.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;

/// Look-ups of "localhost" by this program, which a test holds up.
class HeldLookups {
 public:
  void hold() {
    const std::scoped_lock lock(mutex_);
    held_ = true;
    begun_ = ended_ = 0;
  }
  void release() {
    const std::scoped_lock lock(mutex_);
    held_ = false;
    released_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++begun_;
    released_.wait(lock, [this] { return !held_; });
    ++ended_;
  }
  [[nodiscard]] int begun() {
    const std::scoped_lock lock(mutex_);
    return begun_;
  }
  [[nodiscard]] int ended() {
    const std::scoped_lock lock(mutex_);
    return ended_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  bool held_ = false;
  int begun_ = 0, ended_ = 0;
};

HeldLookups& lookups() {
  // Never destroyed: a thread may be inside when the program ends.
  static auto* const held = new HeldLookups;
  return *held;
}

}  // namespace
}  // namespace weightcast

// In place of libc's, for the whole program.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  static const auto real = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool is_name = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (is_name && host != nullptr && std::string_view(host) == "localhost") weightcast::lookups().pass();
  return real(host, service, hints, found);
}

namespace weightcast {
namespace {

struct LookupTest : ServerTest {
  void SetUp() override {
    start();
    lookups().hold();
  }
  void TearDown() override { lookups().release(); }
  [[nodiscard]] std::unique_ptr<HttpClient> client_by_name() const {
    auto made = HttpClient::make({.server = {"localhost", port()}, .trust = {}});
    WC_CHECK(made.has_value());
    return std::move(*made);
  }
};

TEST_F(LookupTest, OneThreadLooksANameUpHoweverOftenAClientAsks) {
  const auto http = client_by_name();
  for (int call = 0; call < 5; ++call) {
    EXPECT_THAT(http->call({.target = "/hello"}, milliseconds(20)),
                FailsWith(Errc::kTimedOut, "localhost: the name's lookup takes too long"));
  }
  EXPECT_TRUE(eventually([] { return lookups().begun() > 0; }));
  lookups().release();
  const auto response = http->call({.target = "/hello"}, kCallLimit);
  ASSERT_TRUE(response.has_value()) << response.error().message();
  EXPECT_EQ(response->body, "hello");
  EXPECT_EQ(lookups().begun(), 1) << "the last call took the answer that the first one asked for";
}

TEST_F(LookupTest, ACallIsCalledOffAndItsClientEndsWithoutTheNameServer) {
  auto http = client_by_name();
  Result<HttpResponse> response = HttpResponse{};
  std::thread calls([&] { response = http->call({.target = "/hello"}, kCallLimit); });
  EXPECT_TRUE(eventually([] { return lookups().begun() == 1; }));
  http->interrupt();
  calls.join();
  EXPECT_THAT(response, FailsWith(Errc::kCancelled));
  http.reset();
  EXPECT_EQ(lookups().ended(), 0) << "nobody has waited for it";
  lookups().release();
  EXPECT_TRUE(eventually([] { return lookups().ended() == 1; }));
}

}  // namespace
}  // namespace weightcast
