// CSR matrix times dense matrix on the CPU: plain C++17 behind a C interface on raw pointers, tied to no
// version of torch.
//
//     out[i] = alpha * sum_k value[k] * x[col[k]] + beta * y[i],        k = crow[i] ... crow[i + 1] - 1
//
// The time goes into fetching rows of x from memory in no order. So a whole tile of the row of out is summed
// in registers over all non-zeros of the row, and the rows of x some non-zeros ahead are prefetched.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "threads.h"

#define INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

namespace {

constexpr std::int64_t LINE = 64;        // bytes that memory hands over at once
constexpr std::int64_t AHEAD = 8192;     // bytes of x asked for ahead: a part of the smallest cache
constexpr std::int64_t NEAR = 1 << 20;   // bytes of x that lie in a cache near the core anyway
constexpr std::int64_t PIECES = 16;      // pieces of work for each thread: the last to end keeps few waiting
constexpr std::int64_t SHARE = 1 << 18;  // products of numbers that are worth another thread, about 50 us

// ---- Numbers: how they are stored, and vectors of what they are summed in ---------------------------------

struct BFloat16 { std::uint16_t bits; };
struct Half { std::uint16_t bits; };

template <class T, int L> struct Vec;  // L numbers of type T; Loose: the same anywhere in memory
#define VECTOR(T, U, L)                                                                                      \
    template <> struct Vec<T, L> {                                                                           \
        typedef T Type __attribute__((vector_size(L * sizeof(T))));                                          \
        typedef T Loose __attribute__((vector_size(L * sizeof(T)), aligned(alignof(T)), may_alias));         \
        typedef U Bits __attribute__((vector_size(L * sizeof(T))));                                          \
        typedef std::uint16_t Short __attribute__((vector_size(L * 2), aligned(2), may_alias));              \
    };
VECTOR(float, std::uint32_t, 4)
VECTOR(float, std::uint32_t, 8)
VECTOR(float, std::uint32_t, 16)
VECTOR(double, std::uint64_t, 4)
VECTOR(double, std::uint64_t, 8)
#undef VECTOR

template <class S> struct Sum { using Type = S; };
template <> struct Sum<BFloat16> { using Type = float; };
template <> struct Sum<Half> { using Type = float; };

// The L stored numbers at p in vec, as what they are summed in. A reference, as wide vectors are no arguments
// of functions compiled for narrower machines.
template <int L, class S, class V> INLINE void load(const S* p, V& vec) {
    using T = typename Sum<S>::Type;
    using Bits = typename Vec<T, L>::Bits;
    if constexpr (std::is_same_v<S, T>) {
        vec = *reinterpret_cast<const typename Vec<T, L>::Loose*>(p);
    } else {
        using Short = typename Vec<T, L>::Short;
        const Bits bits = __builtin_convertvector(*reinterpret_cast<const Short*>(p), Bits);
        if constexpr (std::is_same_v<S, BFloat16>) {
            vec = reinterpret_cast<V>(bits << 16);
        } else {  // a product moves the exponent and brings subnormal numbers right; infinity and NaN by hand
            const Bits magnitude = (bits & 0x7fff) << 13;
            const Bits special = reinterpret_cast<Bits>(magnitude >= 0x7c00u << 13) & 0x7f800000;
            const V scaled = reinterpret_cast<V>(magnitude) * 0x1p112f;
            vec = reinterpret_cast<V>(reinterpret_cast<Bits>(scaled) | special | ((bits & 0x8000) << 16));
        }
    }
}

// Fewer than L numbers, 1 at least, in copies of fixed sizes that may overlap: L is small, and memcpy a call.
template <int L, class T> INLINE void copy_some(T* to, const T* from, std::int64_t count) {
    if constexpr (L > 1) {
        constexpr int half = L / 2;
        if (count < half) return copy_some<half>(to, from, count);
        std::memcpy(to, from, half * sizeof(T));
        std::memcpy(to + count - half, from + count - half, half * sizeof(T));
    }
}

// ---- One product ------------------------------------------------------------------------------------------

template <class S, class I> struct Product {
    using T = typename Sum<S>::Type;
    std::int64_t columns, width;  // of the matrix, and of x
    const I *crow, *col;
    const T* value;
    const S* x;
    std::int64_t x_stride;
    T alpha, beta;
    const T* y;
    std::int64_t y_stride;
    T* out;
    std::int64_t out_stride;
};

// N vectors of L numbers, from column `start`, of the rows first to last. Only `live` of the numbers are
// wanted: the others are read past the end of a row of x and dropped; near the end of x, where that would
// leave it, the row is copied first.
template <int L, int N, class S, class I>
INLINE void tile(const Product<S, I>& p, std::int64_t first, std::int64_t last, std::int64_t start,
                 std::int64_t live) {
    using T = typename Sum<S>::Type;
    using V = typename Vec<T, L>::Type;
    using Loose = typename Vec<T, L>::Loose;
    constexpr std::int64_t bytes = L * N * sizeof(S);
    constexpr std::int64_t ahead = std::clamp<std::int64_t>(AHEAD / bytes, 4, 32);
    const std::int64_t beyond = start + L * N - p.width;  // so many numbers are read past the end of a row
    std::int64_t safe = p.columns;  // up to this row that is still inside x
    if (beyond > 0) safe = p.x_stride > 0 ? p.columns - 1 - (beyond + p.x_stride - 1) / p.x_stride : -1;
    const bool far = p.columns * p.x_stride * static_cast<std::int64_t>(sizeof(S)) > NEAR;
    const std::int64_t end = static_cast<std::int64_t>(p.crow[last]);
    const S* const x = p.x + start;
    for (std::int64_t i = first; i < last; ++i) {
        V sum[N];
        UNROLL for (int n = 0; n < N; ++n) sum[n] = V{};
        const std::int64_t stop = static_cast<std::int64_t>(p.crow[i + 1]);
        for (std::int64_t k = static_cast<std::int64_t>(p.crow[i]); k < stop; ++k) {
            if (far) {
                const std::int64_t later = std::min(k + ahead, end - 1);
                const S* const row = x + static_cast<std::int64_t>(p.col[later]) * p.x_stride;
                const char* const next = reinterpret_cast<const char*>(row);
                for (std::int64_t b = 0; b < bytes; b += LINE) __builtin_prefetch(next + b);
            }
            const std::int64_t j = static_cast<std::int64_t>(p.col[k]);
            const T v = p.value[k];
            const S* row = x + j * p.x_stride;
            S copy[L * N];
            if (__builtin_expect(j > safe, 0)) {
                std::memset(copy, 0, sizeof copy);
                std::memcpy(copy, row, live * sizeof(S));
                row = copy;
            }
            UNROLL for (int n = 0; n < N; ++n) {
                V numbers;
                load<L>(row + n * L, numbers);
                sum[n] += v * numbers;
            }
        }
        T* const out = p.out + i * p.out_stride + start;
        const T* const y = p.beta == T(0) ? nullptr : p.y + i * p.y_stride + start;
        UNROLL for (int n = 0; n < N; ++n) {
            V result = p.alpha * sum[n];
            const std::int64_t rest = live - n * L;
            if (rest >= L) {
                if (y) result += p.beta * *reinterpret_cast<const Loose*>(y + n * L);
                *reinterpret_cast<Loose*>(out + n * L) = result;
            } else {
                V old{};
                if (y) copy_some<L>(reinterpret_cast<T*>(&old), y + n * L, rest);
                result += p.beta * old;
                copy_some<L>(out + n * L, reinterpret_cast<const T*>(&result), rest);
            }
        }
    }
}

// The columns of out in as few tiles as the registers allow: MOST is the number of full vectors they hold.
template <int MOST, class S, class I>
INLINE void rows(const Product<S, I>& p, std::int64_t first, std::int64_t last) {
    constexpr int L = 64 / sizeof(typename Sum<S>::Type);
    std::int64_t start = 0;
    for (; p.width - start >= L * MOST; start += L * MOST) tile<L, MOST>(p, first, last, start, L * MOST);
    if constexpr (MOST > 8) {
        if (p.width - start >= L * 8) tile<L, 8>(p, first, last, start, L * 8), start += L * 8;
    }
    if constexpr (MOST > 4) {
        if (p.width - start >= L * 4) tile<L, 4>(p, first, last, start, L * 4), start += L * 4;
    }
    const std::int64_t live = p.width - start;
    if (live > 3 * L) tile<L, 4>(p, first, last, start, live);
    else if (live > 2 * L) tile<L, 3>(p, first, last, start, live);
    else if (live > L) tile<L, 2>(p, first, last, start, live);
    else if (live > 8) tile<L, 1>(p, first, last, start, live);
    else if (live > 4) tile<8, 1>(p, first, last, start, live);
    else if (live > 0) tile<4, 1>(p, first, last, start, live);
}

// ---- One kernel for each kind of processor ----------------------------------------------------------------

template <class S, class I> using Kernel = void (*)(const Product<S, I>&, std::int64_t, std::int64_t);

template <class S, class I> void plain(const Product<S, I>& p, std::int64_t first, std::int64_t last) {
    rows<4>(p, first, last);
}

#if defined(__x86_64__)
template <class S, class I>
__attribute__((target("avx2,fma"))) void avx2(const Product<S, I>& p, std::int64_t first, std::int64_t last) {
    rows<4>(p, first, last);
}
template <class S, class I>
__attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl"))) void avx512(
    const Product<S, I>& p, std::int64_t first, std::int64_t last) {
    rows<16>(p, first, last);
}
#endif

#if defined(__x86_64__)
enum Level { BASELINE, AVX2, AVX512 };

Level level() {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return AVX512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? AVX2 : BASELINE;
}
#endif

template <class S, class I> Kernel<S, I> kernel() {
#if defined(__x86_64__)
    static const Level found = level();
    if (found == AVX512) return avx512<S, I>;
    if (found == AVX2) return avx2<S, I>;
#endif
    return plain<S, I>;
}

// ---- Work for threads --------------------------------------------------------------------------------------

// The first row in [first, last] with at least `work` non-zeros and rows (an empty one costs a little, too)
// before it.
template <class S, class I>
std::int64_t row_at(const Product<S, I>& p, std::int64_t first, std::int64_t last, std::int64_t work) {
    std::int64_t low = first, high = last;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        const std::int64_t before = middle - first + static_cast<std::int64_t>(p.crow[middle] - p.crow[first]);
        if (before < work) low = middle + 1;
        else high = middle;
    }
    return low;
}

template <class S, class I>
void run(const Product<S, I>& p, std::int64_t first, std::int64_t last, int threads) {
    const Kernel<S, I> multiply = kernel<S, I>();
    const std::int64_t work = static_cast<std::int64_t>(p.crow[last] - p.crow[first]) + last - first;
    const std::int64_t shares = 1 + work * std::max<std::int64_t>(p.width, 16) / SHARE;
    const std::int64_t useful = std::min<std::int64_t>(threads, shares);
    if (useful < 2) return multiply(p, first, last);
    const std::int64_t pieces = useful * PIECES;
    std::atomic<std::int64_t> next{0};
    on_threads(static_cast<int>(useful), [&] {  // whoever is done with a piece takes the next
        for (std::int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
            const std::int64_t from = row_at(p, first, last, work * piece / pieces);
            const bool ends = piece + 1 == pieces;
            const std::int64_t to = ends ? last : row_at(p, first, last, work * (piece + 1) / pieces);
            if (from < to) multiply(p, from, to);
        }
    });
}

}  // namespace

#ifndef GFGNN_SOURCE
#define GFGNN_SOURCE 0
#endif

extern "C" {

// The checksum of the source this was compiled from.
std::uint32_t gfgnn_source() { return GFGNN_SOURCE; }

// What the kernels are compiled for here.
const char* gfgnn_level() {
#if defined(__x86_64__)
    const Level found = level();
    if (found != BASELINE) return found == AVX512 ? "avx512" : "avx2";
#elif defined(__aarch64__)
    return "neon";
#endif
    return "baseline";
}

#define PRODUCT(NAME, S, T, I)                                                                               \
    void gfgnn_spmm_##NAME(std::int64_t first, std::int64_t last, std::int64_t columns, std::int64_t width,  \
                           const void* crow, const void* col, const void* value, const void* x,              \
                           std::int64_t x_stride, double alpha, double beta, const void* y,                  \
                           std::int64_t y_stride, void* out, std::int64_t out_stride, int threads) {         \
        const Product<S, I> p{columns, width, static_cast<const I*>(crow), static_cast<const I*>(col),       \
                              static_cast<const T*>(value), static_cast<const S*>(x), x_stride,              \
                              static_cast<T>(alpha), static_cast<T>(beta), static_cast<const T*>(y),         \
                              y_stride, static_cast<T*>(out), out_stride};                                   \
        if (first < last && width > 0) run(p, first, last, threads);                                         \
    }
PRODUCT(float32_int32, float, float, std::int32_t)
PRODUCT(float32_int64, float, float, std::int64_t)
PRODUCT(float64_int32, double, double, std::int32_t)
PRODUCT(float64_int64, double, double, std::int64_t)
PRODUCT(bfloat16_int32, BFloat16, float, std::int32_t)
PRODUCT(bfloat16_int64, BFloat16, float, std::int64_t)
PRODUCT(float16_int32, Half, float, std::int32_t)
PRODUCT(float16_int64, Half, float, std::int64_t)
#undef PRODUCT
}
