"""Row softmax in C++: OpenMP over rows, vectors of VEC floats, UNROLL of them in flight, an exponential of our own.

With STREAM a row is kept in a buffer that stays in the cache and the result goes past the cache to memory, which saves
reading every line of the output before it is written.
It speaks to Python through the plain C interface and includes no header of torch: those take 20 seconds to compile, this
takes one. Tunables are template arguments that are chosen at run time, so that all of SPACE is one text to build.
"""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CONFIG = {"VEC": 8, "UNROLL": 1, "THREADS": 1, "STREAM": 0}
SPACE = {
    "VEC": [8, 16],
    "UNROLL": [1, 4],
    "THREADS": [1, 2, 4],
    "STREAM": [0, 1],
}

SOURCE = r"""
#include <Python.h>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#if defined(__AVX__)
#include <immintrin.h>
#endif

static constexpr float kLowest = -std::numeric_limits<float>::infinity();

template <int VEC>
struct Lanes {
  typedef float F __attribute__((vector_size(VEC * 4)));
  typedef uint32_t U __attribute__((vector_size(VEC * 4)));

  static F load(const float* from) { F v; std::memcpy(&v, from, sizeof v); return v; }
  static F load_some(const float* from, long count) {
    F v = F{} + kLowest;
    std::memcpy(&v, from, count * sizeof(float));
    return v;
  }
  static void store(float* to, F v) { std::memcpy(to, &v, sizeof v); }
  static void store_past_cache(float* to, F v) {  // `to` is a multiple of 64 bytes
#if defined(__AVX__)
    for (int part = 0; part < VEC; part += 8) {
      __m256 eight;
      std::memcpy(&eight, reinterpret_cast<const float*>(&v) + part, sizeof eight);
      _mm256_stream_ps(to + part, eight);
    }
#else
    store(to, v);
#endif
  }
  static F larger(F a, F b) { return a > b ? a : b; }

  // exp(x) for x <= 0: x = k ln 2 + r with ln 2 in two parts, a polynomial in r, then 2^k put into the exponent.
  // What would be a denormal is 0; NaN stays NaN.
  static F exp(F x) {
    const F in = x < -87.0f ? F{} - 87.0f : x;
    const F shifted = in * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds, and leaves k in the low bits
    const F k = shifted - 12582912.0f;
    F r = in - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    F p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const F power = (F)(((U)shifted + 127u) << 23);
    return x < -87.0f ? F{} : p * power;
  }
};

template <int VEC, int UNROLL>
static void one_row(const float* in, float* kept, float* out, long n) {  // kept: the buffer, or out itself
  using L = Lanes<VEC>;
  using F = typename L::F;
  constexpr long kStep = long(VEC) * UNROLL;
  F tops[UNROLL], sums[UNROLL];
  for (int u = 0; u < UNROLL; ++u) { tops[u] = F{} + kLowest; sums[u] = F{}; }

  long i = 0;
  for (; i + kStep <= n; i += kStep)
    for (int u = 0; u < UNROLL; ++u) tops[u] = L::larger(L::load(in + i + u * VEC), tops[u]);
  for (; i < n; i += VEC) tops[0] = L::larger(L::load_some(in + i, n - i < VEC ? n - i : VEC), tops[0]);
  for (int u = 1; u < UNROLL; ++u) tops[0] = L::larger(tops[0], tops[u]);
  float top = kLowest;
  for (int lane = 0; lane < VEC; ++lane) top = tops[0][lane] > top ? tops[0][lane] : top;

  for (i = 0; i + kStep <= n; i += kStep)
    for (int u = 0; u < UNROLL; ++u) {
      const F e = L::exp(L::load(in + i + u * VEC) - top);
      L::store(kept + i + u * VEC, e);
      sums[u] += e;
    }
  for (; i < n; i += VEC) {
    const long count = n - i < VEC ? n - i : VEC;
    const F e = L::exp(L::load_some(in + i, count) - top);  // lanes past the end are -inf - top: they add 0
    std::memcpy(kept + i, &e, count * sizeof(float));
    for (int lane = 0; lane < count; ++lane) sums[0][lane] += e[lane];
  }
  for (int u = 1; u < UNROLL; ++u) sums[0] += sums[u];
  float total = 0.0f;
  for (int lane = 0; lane < VEC; ++lane) total += sums[0][lane];

  const float scale = 1.0f / total;
  if (kept != out) {
    for (i = 0; i < n; i += VEC) L::store_past_cache(out + i, L::load(kept + i) * scale);
    return;
  }
  for (i = 0; i + VEC <= n; i += VEC) L::store(out + i, L::load(out + i) * scale);
  for (; i < n; ++i) out[i] *= scale;
}

template <int VEC, int UNROLL>
static void all_rows(const float* x, float* y, long m, long n, int threads, bool stream) {
  stream = stream && n % 16 == 0 && reinterpret_cast<uintptr_t>(y) % 64 == 0;
#pragma omp parallel num_threads(threads) if (threads > 1 && m * n > 32768)
  {
    std::unique_ptr<float[]> buffer(stream ? new float[n] : nullptr);
#pragma omp for schedule(dynamic, 16)
    for (long row = 0; row < m; ++row)
      one_row<VEC, UNROLL>(x + row * n, stream ? buffer.get() : y + row * n, y + row * n, n);
#if defined(__AVX__)
    if (stream) _mm_sfence();
#endif
  }
}

static PyObject* softmax(PyObject*, PyObject* args) {
  unsigned long long x, y;
  long m, n;
  int vec, unroll, threads, stream;
  if (!PyArg_ParseTuple(args, "KKlliiii", &x, &y, &m, &n, &vec, &unroll, &threads, &stream)) return nullptr;
  auto run = vec == 8 ? (unroll == 1 ? all_rows<8, 1> : unroll == 4 ? all_rows<8, 4> : nullptr)
           : vec == 16 ? (unroll == 1 ? all_rows<16, 1> : unroll == 4 ? all_rows<16, 4> : nullptr)
                       : nullptr;
  if (run == nullptr) return PyErr_Format(PyExc_ValueError, "no code for VEC=%d, UNROLL=%d", vec, unroll);
  Py_BEGIN_ALLOW_THREADS
  run(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y), m, n, threads, stream != 0);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"softmax", softmax, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "softmax_tiled", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_softmax_tiled() { return PyModule_Create(&module); }
"""

library = load_inline(
    "softmax_tiled",
    SOURCE,
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
    no_implicit_headers=True,
)


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        out = torch.empty_like(rows)
        if rows.numel():
            tunables = (CONFIG[name] for name in ("VEC", "UNROLL", "THREADS", "STREAM"))
            library.softmax(rows.data_ptr(), out.data_ptr(), *rows.shape, *tunables)
        return out.reshape(x.shape)
