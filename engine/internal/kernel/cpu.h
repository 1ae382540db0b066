// What the kernels share: how they are written for a processor that the compiler was not told of, and how ggml's CPU
// backend finds them.
#pragma once

#include "kernel.h"

#if defined(__x86_64__)
#define QUERN_X86

#include <immintrin.h>

#include <cstdint>

#include "ggml-cpu.h"
#include "traits.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c,avx2")))
#define INLINE AVX512 inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16") // else arrays of vectors would lie in memory

// align is where memory handed out by ggml begins to be aligned to 64 bytes.
inline char *align(void *p) { return reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(p) + 63) / 64 * 64); }

// Each returns its kernel where it can compute the node of a graph, or NULL. The answer depends on nothing else, as ggml
// asks several times: for the memory that is needed, and in each thread.
ggml::cpu::tensor_traits *product_kernel(const ggml_tensor *op);
ggml::cpu::tensor_traits *attention_kernel(const ggml_tensor *op);

#endif
