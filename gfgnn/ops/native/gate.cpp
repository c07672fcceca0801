// Which numbers of an array are positive, one bit each, and what to do with such bits: plain C++17 behind a C interface.
//
// Bit i % 8 of byte i / 8 belongs to number i; the bits after the last number are 0.

#include <algorithm>
#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "threads.h"

namespace {

constexpr std::int64_t PIECE = 1 << 17;  // numbers, a multiple of 8, that are worth another thread

template <class T> void pack_plain(const T* z, std::uint8_t* bits, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += 8) {
        unsigned byte = 0;
        for (std::int64_t j = i; j < std::min(i + 8, n); ++j) byte |= static_cast<unsigned>(z[j] > 0) << (j - i);
        bits[i / 8] = static_cast<std::uint8_t>(byte);
    }
}

// out = x where the bit is set, else slope * x. A NaN of x stays one, whatever the bit and the slope.
template <class T>
void through_plain(const T* x, const std::uint8_t* bits, T* out, std::int64_t n, T slope) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * (bits[i / 8] >> (i % 8) & 1 ? T(1) : slope);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void pack_avx2(const float* z, std::uint8_t* bits, std::int64_t n) {
    const std::int64_t whole = n / 8;
    for (std::int64_t i = 0; i < whole; ++i) {
        const __m256 positive = _mm256_cmp_ps(_mm256_loadu_ps(z + 8 * i), _mm256_setzero_ps(), _CMP_GT_OQ);
        bits[i] = static_cast<std::uint8_t>(_mm256_movemask_ps(positive));
    }
    pack_plain(z + 8 * whole, bits + whole, n - 8 * whole);
}

__attribute__((target("avx2"))) void through_avx2(
    const float* x, const std::uint8_t* bits, float* out, std::int64_t n, float slope) {
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256 low = _mm256_set1_ps(slope), one = _mm256_set1_ps(1.0f);
    const std::int64_t whole = n / 8;
    for (std::int64_t i = 0; i < whole; ++i) {
        const __m256i byte = _mm256_set1_epi32(bits[i]);
        const __m256 set = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(byte, each), each));
        _mm256_storeu_ps(out + 8 * i, _mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_blendv_ps(low, one, set)));
    }
    through_plain(x + 8 * whole, bits + whole, out + 8 * whole, n - 8 * whole, slope);
}
#endif

void pack(const float* z, std::uint8_t* bits, std::int64_t n) {
#if defined(__x86_64__)
    static const bool wide = __builtin_cpu_supports("avx2");
    if (wide) return pack_avx2(z, bits, n);
#endif
    pack_plain(z, bits, n);
}
void pack(const double* z, std::uint8_t* bits, std::int64_t n) { pack_plain(z, bits, n); }

void through(const float* x, const std::uint8_t* bits, float* out, std::int64_t n, float slope) {
#if defined(__x86_64__)
    static const bool wide = __builtin_cpu_supports("avx2");
    if (wide) return through_avx2(x, bits, out, n, slope);
#endif
    through_plain(x, bits, out, n, slope);
}
void through(const double* x, const std::uint8_t* bits, double* out, std::int64_t n, double slope) {
    through_plain(x, bits, out, n, slope);
}

// work(first, count) for pieces of n numbers that begin at multiples of 8.
template <class F> void in_pieces(std::int64_t n, int threads, F work) {
    const std::int64_t pieces = (n + PIECE - 1) / PIECE;
    if (threads < 2 || pieces < 2) return work(std::int64_t(0), n);
    std::atomic<std::int64_t> next{0};
    on_threads(static_cast<int>(std::min<std::int64_t>(threads, pieces)), [&] {
        for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces;)
            work(i * PIECE, std::min(PIECE, n - i * PIECE));
    });
}

template <class T> void pack_all(const void* z, void* bits, std::int64_t n, int threads) {
    in_pieces(n, threads, [=](std::int64_t first, std::int64_t count) {
        pack(static_cast<const T*>(z) + first, static_cast<std::uint8_t*>(bits) + first / 8, count);
    });
}

template <class T>
void through_all(const void* x, const void* bits, void* out, std::int64_t n, double slope, int threads) {
    in_pieces(n, threads, [=](std::int64_t first, std::int64_t count) {
        through(static_cast<const T*>(x) + first, static_cast<const std::uint8_t*>(bits) + first / 8,
                static_cast<T*>(out) + first, count, static_cast<T>(slope));
    });
}

}  // namespace

#ifndef GFGNN_SOURCE
#define GFGNN_SOURCE 0
#endif

extern "C" {

// The checksum of the source this was compiled from.
std::uint32_t gfgnn_source() { return GFGNN_SOURCE; }

#define GATE(NAME, T)                                                                                        \
    void gfgnn_gate_pack_##NAME(const void* z, void* bits, std::int64_t n, int threads) {                    \
        pack_all<T>(z, bits, n, threads);                                                                    \
    }                                                                                                        \
    void gfgnn_gate_through_##NAME(const void* x, const void* bits, void* out, std::int64_t n, double slope, \
                                   int threads) {                                                            \
        through_all<T>(x, bits, out, n, slope, threads);                                                     \
    }
GATE(float32, float)
GATE(float64, double)
#undef GATE
}
