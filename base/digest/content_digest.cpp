#include "base/digest/content_digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/result.h"
#include "base/text.h"

namespace weightcast {
namespace {

// Looked up once, because a look-up takes as long as hashing a kilobyte. As in transport/security/openssl.cpp, the
// host's openssl.cnf does not count.
const EVP_MD* sha256() {
  static const EVP_MD* const found = [] {
    WC_CHECK(OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) == 1);
    return EVP_MD_fetch(nullptr, "SHA2-256", nullptr);
  }();
  WC_CHECK(found != nullptr && EVP_MD_get_size(found) == int{ContentDigest::kBytes});
  return found;
}

unsigned char* target(ContentDigest& digest) { return reinterpret_cast<unsigned char*>(digest.bytes.data()); }

}  // namespace

std::string ContentDigest::hex() const { return hex_of(bytes); }

ContentDigest content_digest_of(Bytes data) {
  ContentDigest digest;
  WC_CHECK(EVP_Digest(data.data(), data.size(), target(digest), nullptr, sha256(), nullptr) == 1);
  return digest;
}

struct ContentDigestStream::State {
  State() : context(EVP_MD_CTX_new()) { WC_CHECK(context != nullptr); }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  EVP_MD_CTX* const context;
};

ContentDigestStream::ContentDigestStream() : state_(std::make_unique<State>()) { reset(); }
ContentDigestStream::~ContentDigestStream() = default;
ContentDigestStream::ContentDigestStream(ContentDigestStream&&) noexcept = default;
ContentDigestStream& ContentDigestStream::operator=(ContentDigestStream&&) noexcept = default;

void ContentDigestStream::reset() { WC_CHECK(EVP_DigestInit_ex2(state_->context, sha256(), nullptr) == 1); }

void ContentDigestStream::update(Bytes data) {
  WC_CHECK(EVP_DigestUpdate(state_->context, data.data(), data.size()) == 1);
}

ContentDigest ContentDigestStream::take() {
  ContentDigest digest;
  WC_CHECK(EVP_DigestFinal_ex(state_->context, target(digest), nullptr) == 1);
  reset();
  return digest;
}

}  // namespace weightcast
