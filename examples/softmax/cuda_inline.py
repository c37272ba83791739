"""Row softmax in CUDA C++, built by nvcc through load_inline.

The kernel is that of `cuda_nvrtc.py`: one block a row, ITEMS packs of four floats a thread kept in registers. Neither text
includes a header of torch: with them a build takes a minute, without them seconds.
"""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CONFIG = {"THREADS": 256, "ITEMS": 4}
SPACE = {"THREADS": [128, 256, 512, 1024], "ITEMS": [1, 2, 4, 8]}

CUDA = r"""
#include <cuda_runtime.h>

template <int V> struct alignas(4 * V) Pack { float at[V]; };

struct Larger { __device__ float operator()(float a, float b) const { return fmaxf(a, b); } };
struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };

template <class Join>
__device__ float over_block(float value, float neutral, Join join) {
  __shared__ float parts[32];
  for (int o = 16; o; o /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, o));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < THREADS / 32 ? parts[threadIdx.x % 32] : neutral;
  for (int o = 16; o; o /= 2) value = join(value, __shfl_xor_sync(0xffffffffu, value, o));
  __syncthreads();  // parts is used again
  return value;
}

template <int V>
__global__ void __launch_bounds__(THREADS) softmax_rows(const float* x, float* y, long long n) {
  const float lowest = __int_as_float(0xff800000);
  const long long packs = n / V;
  const auto* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * n);
  auto* out = reinterpret_cast<Pack<V>*>(y + blockIdx.x * n);
  Pack<V> kept[ITEMS];
  float top = lowest;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const long long i = threadIdx.x + k * THREADS;
    for (int v = 0; v < V; ++v) kept[k].at[v] = lowest;
    if (i < packs) kept[k] = in[i];
    for (int v = 0; v < V; ++v) top = fmaxf(top, kept[k].at[v]);
  }
  for (long long i = threadIdx.x + ITEMS * THREADS; i < packs; i += THREADS) {
    const Pack<V> pack = in[i];
    for (int v = 0; v < V; ++v) top = fmaxf(top, pack.at[v]);
  }
  top = over_block(top, lowest, Larger());

  // Lanes without a value hold -inf and add 0; a row of nothing but -inf is 0/0 as it should be, hence the shift by 0.
  const float shift = top == lowest ? 0.0f : top;
  float total = 0.0f;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    for (int v = 0; v < V; ++v) total += kept[k].at[v] = expf(kept[k].at[v] - shift);
  for (long long i = threadIdx.x + ITEMS * THREADS; i < packs; i += THREADS) {
    const Pack<V> pack = in[i];
    for (int v = 0; v < V; ++v) total += expf(pack.at[v] - shift);
  }
  total = over_block(total, 0.0f, Sum());

#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const long long i = threadIdx.x + k * THREADS;
    for (int v = 0; v < V; ++v) kept[k].at[v] = kept[k].at[v] / total;
    if (i < packs) out[i] = kept[k];
  }
  for (long long i = threadIdx.x + ITEMS * THREADS; i < packs; i += THREADS) {
    Pack<V> pack = in[i];
    for (int v = 0; v < V; ++v) pack.at[v] = expf(pack.at[v] - shift) / total;
    out[i] = pack;
  }
}

const char* softmax_on(const float* x, float* y, long m, long n, void* stream) {
  const bool whole = n % 4 == 0 && (reinterpret_cast<size_t>(x) | reinterpret_cast<size_t>(y)) % 16 == 0;
  const auto queue = static_cast<cudaStream_t>(stream);
  if (whole) softmax_rows<4><<<m, THREADS, 0, queue>>>(x, y, n);
  else softmax_rows<1><<<m, THREADS, 0, queue>>>(x, y, n);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
"""

CPP = r"""
#include <Python.h>

const char* softmax_on(const float* x, float* y, long m, long n, void* stream);

static PyObject* softmax(PyObject*, PyObject* args) {
  unsigned long long x, y, stream;
  long m, n;
  if (!PyArg_ParseTuple(args, "KKllK", &x, &y, &m, &n, &stream)) return nullptr;
  const char* error = softmax_on(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y), m, n,
                                 reinterpret_cast<void*>(stream));
  if (error != nullptr) return PyErr_Format(PyExc_RuntimeError, "launch failed: %s", error);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"softmax", softmax, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "softmax_cuda", nullptr, -1, methods};
#define INIT_(name) PyInit_##name
#define INIT(name) INIT_(name)
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""
built = {}
"""Libraries by the values that were compiled in."""


def library():
    key = (CONFIG["THREADS"], CONFIG["ITEMS"])
    if key not in built:
        built[key] = load_inline(
            "softmax_{}_{}".format(*key),
            CPP,
            CUDA,
            extra_cuda_cflags=["-O3", *(f"-D{name}={CONFIG[name]}" for name in ("THREADS", "ITEMS"))],
            no_implicit_headers=True,
        )
    return built[key]


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        out = torch.empty_like(rows)
        if rows.numel():
            stream = torch.cuda.current_stream(x.device).cuda_stream
            library().softmax(rows.data_ptr(), out.data_ptr(), *rows.shape, stream)
        return out.reshape(x.shape)
