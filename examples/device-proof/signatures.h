/* Host functions that only this node has: module `fieldbrook`.
 *
 * FB_OK means that the signature is valid for the key. Every other number means that it is
 * not, so comparing with FB_OK is safe for any input.
 */
#ifndef SIGNATURES_H
#define SIGNATURES_H

#include <stddef.h>
#include <stdint.h>

#define FB_IMPORT(name) __attribute__((import_module("fieldbrook"), import_name(name)))

enum {
  FB_OK = 0,
  FB_NOT_A_DIGEST = 10,
  FB_SIGNATURE_INVALID = 11,
  FB_SIGNATURE_MALFORMED = 12,
  FB_KEY_MALFORMED = 13
};

/* Verify ECDSA over a digest of 32 bytes. Signature: 64 bytes (R, S), or DER. Key: 33, 64 or
 * 65 bytes. */
FB_IMPORT("verify_p256")
int32_t fb_verify_p256(const void *digest, size_t digest_size, const void *signature,
                       size_t signature_size, const void *key, size_t key_size);
FB_IMPORT("verify_secp256k1")
int32_t fb_verify_secp256k1(const void *digest, size_t digest_size, const void *signature,
                            size_t signature_size, const void *key, size_t key_size);

/* Verify Ed25519 over the message itself. Signature: 64 bytes, key: 32 bytes. */
FB_IMPORT("verify_ed25519")
int32_t fb_verify_ed25519(const void *message, size_t message_size, const void *signature,
                          size_t signature_size, const void *key, size_t key_size);

/* Recover the 64-byte public key or the 20-byte Ethereum address from a 65-byte signature
 * (R, S, V). */
FB_IMPORT("recover_secp256k1")
int32_t fb_recover_secp256k1(const void *digest, size_t digest_size, const void *signature,
                             size_t signature_size, uint8_t **key, size_t *key_size);
FB_IMPORT("recover_address")
int32_t fb_recover_address(const void *digest, size_t digest_size, const void *signature,
                           size_t signature_size, uint8_t **address, size_t *address_size);

/* Digests of 32 bytes. */
FB_IMPORT("sha256")
int32_t fb_sha256(const void *data, size_t data_size, uint8_t **digest, size_t *digest_size);
FB_IMPORT("keccak256")
int32_t fb_keccak256(const void *data, size_t data_size, uint8_t **digest, size_t *digest_size);

#endif
