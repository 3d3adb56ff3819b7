#include "transport/security/openssl.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>

#include "base/result.h"

namespace weightcast {

void set_up_openssl() { WC_CHECK(OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) == 1); }

std::string take_openssl_error() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  if (code == 0) return "no reason given";
  const char* reason = ERR_reason_error_string(code);
  if (reason != nullptr) return reason;
  std::array<char, 128> text{};
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

std::string text_of(BIO* memory) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}

}  // namespace weightcast
