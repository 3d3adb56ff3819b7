#include "bench/relay/cipher_floor.h"

#include <array>
#include <vector>

#include "base/units.h"
#include "bench/times.h"
#include "transport/security/openssl.h"

namespace weightcast::bench {
namespace {

constexpr std::size_t kRecordBytes = 16 * kKiB;
constexpr std::size_t kTagBytes = 16;
constexpr int kEncrypt = 1;
constexpr int kDecrypt = 0;

using UniqueCipher = std::unique_ptr<EVP_CIPHER_CTX, OpensslFree<EVP_CIPHER_CTX_free>>;

bool seal(EVP_CIPHER_CTX* cipher, const unsigned char* nonce, std::vector<unsigned char>& record, unsigned char* tag) {
  int size = 0;
  return EVP_CipherInit_ex(cipher, nullptr, nullptr, nullptr, nonce, kEncrypt) == 1 &&
         EVP_CipherUpdate(cipher, record.data(), &size, record.data(), static_cast<int>(record.size())) == 1 &&
         EVP_CipherFinal_ex(cipher, record.data(), &size) == 1 &&
         EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) == 1;
}

bool open(EVP_CIPHER_CTX* cipher, const unsigned char* nonce, std::vector<unsigned char>& record, unsigned char* tag) {
  int size = 0;
  return EVP_CipherInit_ex(cipher, nullptr, nullptr, nullptr, nonce, kDecrypt) == 1 &&
         EVP_CipherUpdate(cipher, record.data(), &size, record.data(), static_cast<int>(record.size())) == 1 &&
         EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag) == 1 &&
         EVP_CipherFinal_ex(cipher, record.data(), &size) == 1;
}

}  // namespace

Result<double> cipher_floor_s(std::uint64_t bytes) {
  set_up_openssl();
  const std::array<unsigned char, 16> key{1};
  std::array<unsigned char, 12> nonce{};
  std::array<unsigned char, kTagBytes> tag{};
  std::vector<unsigned char> record(kRecordBytes, 0x5a);
  const UniqueCipher out(EVP_CIPHER_CTX_new()), in(EVP_CIPHER_CTX_new());
  const bool ready =
      EVP_CipherInit_ex(out.get(), EVP_aes_128_gcm(), nullptr, key.data(), nonce.data(), kEncrypt) == 1 &&
      EVP_CipherInit_ex(in.get(), EVP_aes_128_gcm(), nullptr, key.data(), nonce.data(), kDecrypt) == 1;
  if (!ready) return fail(Errc::kUnsupported, Op::kEncode, "AES-128-GCM: " + take_openssl_error());
  const double before_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
  for (std::uint64_t done = 0; done < bytes; done += kRecordBytes) {
    ++nonce[0];
    if (!seal(out.get(), nonce.data(), record, tag.data()) || !open(in.get(), nonce.data(), record, tag.data())) {
      return fail(Errc::kCorrupt, Op::kDecode, "AES-128-GCM: " + take_openssl_error());
    }
  }
  return clock_s(CLOCK_THREAD_CPUTIME_ID) - before_s;
}

}  // namespace weightcast::bench
