/* MD5 (RFC 1321) of many messages at once, eight lanes wide.
 *
 * Clients verify the body digest of every message they receive, and MD5 is the digest that all of them know. One MD5 runs
 * at about 0.5 GB/s because each of its steps waits for the one before; eight independent messages side by side, one per
 * 32-bit lane of a vector, fill that wait. The vectors are GCC's (AVX2 where the processor has it, two SSE2 or NEON halves
 * elsewhere), so this file has no intrinsics.
 */
#ifndef RAZZO_MD5_LANES_H
#define RAZZO_MD5_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the lanes load message words as they lie in memory: little-endian machines only"
#endif

#define MD5_LANES 8
#define MD5_BLOCK 64

typedef uint32_t md5_vec __attribute__((vector_size(4 * MD5_LANES)));

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(RAZZO_SANITIZE)
#define MD5_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define MD5_CLONES
#endif

/* What one lane works on: whole blocks straight from the message, then its padded end. */
typedef struct {
    const uint8_t *next;
    uint64_t blocks;       /* still to do at `next` */
    uint64_t tail_blocks;  /* 1 or 2, once the whole blocks are done; 0 when the lane is in its tail */
    int message;           /* index, -1 when idle */
    uint8_t tail[2 * MD5_BLOCK];
} md5_lane;

static const uint32_t MD5_SINES[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

/* The sixteen words of one block of each lane, word i of all lanes together: two 8 x 8 transpositions. */
static inline __attribute__((always_inline)) void md5_gather(const uint8_t *const *at, md5_vec *words) {
    const md5_vec low1 = {0, 8, 1, 9, 4, 12, 5, 13}, high1 = {2, 10, 3, 11, 6, 14, 7, 15};
    const md5_vec low2 = {0, 1, 8, 9, 4, 5, 12, 13}, high2 = {2, 3, 10, 11, 6, 7, 14, 15};
    const md5_vec low3 = {0, 1, 2, 3, 8, 9, 10, 11}, high3 = {4, 5, 6, 7, 12, 13, 14, 15};
    for (int half = 0; half < 2; half++) {
        md5_vec r[8], s[8], t[8];
        for (int lane = 0; lane < MD5_LANES; lane++)
            memcpy(&r[lane], at[lane] + 32 * half, sizeof(md5_vec));
        for (int i = 0; i < 4; i++) {
            s[2 * i] = __builtin_shuffle(r[2 * i], r[2 * i + 1], low1);
            s[2 * i + 1] = __builtin_shuffle(r[2 * i], r[2 * i + 1], high1);
        }
        for (int i = 0; i < 2; i++) {
            t[4 * i] = __builtin_shuffle(s[4 * i], s[4 * i + 2], low2);
            t[4 * i + 1] = __builtin_shuffle(s[4 * i], s[4 * i + 2], high2);
            t[4 * i + 2] = __builtin_shuffle(s[4 * i + 1], s[4 * i + 3], low2);
            t[4 * i + 3] = __builtin_shuffle(s[4 * i + 1], s[4 * i + 3], high2);
        }
        for (int i = 0; i < 4; i++) {
            words[8 * half + i] = __builtin_shuffle(t[i], t[i + 4], low3);
            words[8 * half + i + 4] = __builtin_shuffle(t[i], t[i + 4], high3);
        }
    }
}

#define MD5_STEP(f, a, b, c, d, word, turn, sine)              \
    do {                                                       \
        md5_vec sum_ = (a) + (f) + (word) + (uint32_t)(sine);  \
        (a) = ((sum_ << (turn)) | (sum_ >> (32 - (turn)))) + (b); \
    } while (0)

/* `count` blocks of every lane. `step[lane]` is 64, or 0 for an idle lane that points at any 64 readable bytes. */
MD5_CLONES static void md5_blocks(md5_vec *state, const uint8_t **at, const uint32_t *step, uint64_t count) {
    md5_vec a = state[0], b = state[1], c = state[2], d = state[3];
    md5_vec w[16];
    while (count--) {
        const md5_vec a0 = a, b0 = b, c0 = c, d0 = d;
        md5_gather(at, w);
#pragma GCC unroll 4
        for (int i = 0; i < 16; i += 4) {
            MD5_STEP(d ^ (b & (c ^ d)), a, b, c, d, w[i], 7, MD5_SINES[i]);
            MD5_STEP(c ^ (a & (b ^ c)), d, a, b, c, w[i + 1], 12, MD5_SINES[i + 1]);
            MD5_STEP(b ^ (d & (a ^ b)), c, d, a, b, w[i + 2], 17, MD5_SINES[i + 2]);
            MD5_STEP(a ^ (c & (d ^ a)), b, c, d, a, w[i + 3], 22, MD5_SINES[i + 3]);
        }
#pragma GCC unroll 4
        for (int i = 16; i < 32; i += 4) {
            MD5_STEP(c ^ (d & (b ^ c)), a, b, c, d, w[(5 * i + 1) & 15], 5, MD5_SINES[i]);
            MD5_STEP(b ^ (c & (a ^ b)), d, a, b, c, w[(5 * i + 6) & 15], 9, MD5_SINES[i + 1]);
            MD5_STEP(a ^ (b & (d ^ a)), c, d, a, b, w[(5 * i + 11) & 15], 14, MD5_SINES[i + 2]);
            MD5_STEP(d ^ (a & (c ^ d)), b, c, d, a, w[(5 * i) & 15], 20, MD5_SINES[i + 3]);
        }
#pragma GCC unroll 4
        for (int i = 32; i < 48; i += 4) {
            MD5_STEP(b ^ c ^ d, a, b, c, d, w[(3 * i + 5) & 15], 4, MD5_SINES[i]);
            MD5_STEP(a ^ b ^ c, d, a, b, c, w[(3 * i + 8) & 15], 11, MD5_SINES[i + 1]);
            MD5_STEP(d ^ a ^ b, c, d, a, b, w[(3 * i + 11) & 15], 16, MD5_SINES[i + 2]);
            MD5_STEP(c ^ d ^ a, b, c, d, a, w[(3 * i + 14) & 15], 23, MD5_SINES[i + 3]);
        }
#pragma GCC unroll 4
        for (int i = 48; i < 64; i += 4) {
            MD5_STEP(c ^ (b | ~d), a, b, c, d, w[(7 * i) & 15], 6, MD5_SINES[i]);
            MD5_STEP(b ^ (a | ~c), d, a, b, c, w[(7 * i + 7) & 15], 10, MD5_SINES[i + 1]);
            MD5_STEP(a ^ (d | ~b), c, d, a, b, w[(7 * i + 14) & 15], 15, MD5_SINES[i + 2]);
            MD5_STEP(d ^ (c | ~a), b, c, d, a, w[(7 * i + 21) & 15], 21, MD5_SINES[i + 3]);
        }
        a += a0;
        b += b0;
        c += c0;
        d += d0;
        for (int lane = 0; lane < MD5_LANES; lane++)
            at[lane] += step[lane];
    }
    state[0] = a;
    state[1] = b;
    state[2] = c;
    state[3] = d;
}

static void md5_load(md5_lane *lane, int message, const uint8_t *data, uint64_t size) {
    uint64_t rest = size % MD5_BLOCK, bits = size * 8;
    lane->message = message;
    lane->next = data;
    lane->blocks = size / MD5_BLOCK;
    lane->tail_blocks = rest < MD5_BLOCK - 8 ? 1 : 2;
    memset(lane->tail, 0, sizeof lane->tail);
    if (rest)
        memcpy(lane->tail, data + size - rest, rest);
    lane->tail[rest] = 0x80;
    memcpy(lane->tail + lane->tail_blocks * MD5_BLOCK - 8, &bits, 8);
    if (!lane->blocks) {
        lane->next = lane->tail;
        lane->blocks = lane->tail_blocks;
        lane->tail_blocks = 0;
    }
}

static void md5_hex(const md5_vec *state, int lane, char *out) {
    static const char digits[] = "0123456789ABCDEF";
    for (int word = 0; word < 4; word++)
        for (int byte = 0; byte < 4; byte++) {
            uint32_t value = (state[word][lane] >> (8 * byte)) & 0xff;
            *out++ = digits[value >> 4];
            *out++ = digits[value & 15];
        }
}

/* Digests of `n` messages as 32 upper-case hexadecimal characters each, one after the other at `out[i]`. */
static void md5_many(const uint8_t *const *data, const uint64_t *size, char *const *out, int n) {
    static const uint8_t idle[MD5_BLOCK] __attribute__((aligned(32)));
    static const uint32_t start[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    md5_lane lanes[MD5_LANES];
    md5_vec state[4] = {{0}};
    int loaded = 0, done = 0;
    for (int i = 0; i < MD5_LANES; i++)
        lanes[i].message = -1;
    while (done < n) {
        const uint8_t *at[MD5_LANES];
        uint32_t step[MD5_LANES];
        uint64_t count = UINT64_MAX;
        for (int i = 0; i < MD5_LANES; i++) {
            md5_lane *lane = &lanes[i];
            if (lane->message < 0 && loaded < n) {
                md5_load(lane, loaded, data[loaded], size[loaded]);
                loaded++;
                for (int word = 0; word < 4; word++)
                    state[word][i] = start[word];
            }
            at[i] = lane->message < 0 ? idle : lane->next;
            step[i] = lane->message < 0 ? 0 : MD5_BLOCK;
            if (lane->message >= 0 && lane->blocks < count)
                count = lane->blocks;
        }
        md5_blocks(state, at, step, count);
        for (int i = 0; i < MD5_LANES; i++) {
            md5_lane *lane = &lanes[i];
            if (lane->message < 0)
                continue;
            lane->next = at[i];
            lane->blocks -= count;
            if (lane->blocks)
                continue;
            if (lane->tail_blocks) {
                lane->next = lane->tail;
                lane->blocks = lane->tail_blocks;
                lane->tail_blocks = 0;
            } else {
                md5_hex(state, i, out[lane->message]);
                lane->message = -1;
                done++;
            }
        }
    }
}

#endif
