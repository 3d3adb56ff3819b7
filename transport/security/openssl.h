#pragma once

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace weightcast {

template <auto Free>
struct OpensslFree {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using UniqueKey = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using UniqueX509 = std::unique_ptr<X509, OpensslFree<X509_free>>;
using UniqueStore = std::unique_ptr<X509_STORE, OpensslFree<X509_STORE_free>>;
using UniqueStoreContext = std::unique_ptr<X509_STORE_CTX, OpensslFree<X509_STORE_CTX_free>>;
using UniqueRequest = std::unique_ptr<X509_REQ, OpensslFree<X509_REQ_free>>;
using UniqueCrl = std::unique_ptr<X509_CRL, OpensslFree<X509_CRL_free>>;
using UniqueBio = std::unique_ptr<BIO, OpensslFree<BIO_free>>;
using UniqueBignum = std::unique_ptr<BIGNUM, OpensslFree<BN_free>>;
using UniqueAsn1Integer = std::unique_ptr<ASN1_INTEGER, OpensslFree<ASN1_INTEGER_free>>;
using UniqueAsn1Enumerated = std::unique_ptr<ASN1_ENUMERATED, OpensslFree<ASN1_ENUMERATED_free>>;
using UniqueAsn1Time = std::unique_ptr<ASN1_TIME, OpensslFree<ASN1_TIME_free>>;
using UniqueGeneralNames = std::unique_ptr<GENERAL_NAMES, OpensslFree<GENERAL_NAMES_free>>;

/// Sets OpenSSL up for this process, without the host's openssl.cnf: what a connection demands does not depend on it.
/// Harmless when repeated.
void set_up_openssl();

/// OpenSSL's text for the last call of this thread that failed. Empties its queue of errors.
[[nodiscard]] std::string take_openssl_error();

/// What `encode`, one of OpenSSL's i2d_ functions, makes of an object.
template <auto encode, typename T>
[[nodiscard]] std::string der_of(T* object) {
  unsigned char* der = nullptr;
  const int size = encode(object, &der);
  WC_CHECK(size > 0);
  std::string bytes(reinterpret_cast<const char*>(der), static_cast<std::size_t>(size));
  OPENSSL_free(der);
  return bytes;
}

/// The contents of a BIO in memory.
[[nodiscard]] std::string text_of(BIO* memory);

}  // namespace weightcast
