"""What a C++ programmer writes first: three plain loops a row, one thread."""
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <Python.h>
#include <cmath>

static void softmax_rows(const float* x, float* y, long m, long n) {
  for (long row = 0; row < m; ++row) {
    const float* in = x + row * n;
    float* out = y + row * n;
    float top = in[0];
    for (long i = 1; i < n; ++i) top = in[i] > top ? in[i] : top;
    float total = 0.0f;
    for (long i = 0; i < n; ++i) total += out[i] = std::exp(in[i] - top);
    for (long i = 0; i < n; ++i) out[i] /= total;
  }
}

static PyObject* softmax(PyObject*, PyObject* args) {
  unsigned long long x, y;
  long m, n;
  if (!PyArg_ParseTuple(args, "KKll", &x, &y, &m, &n)) return nullptr;
  softmax_rows(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(y), m, n);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"softmax", softmax, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "softmax_naive", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_softmax_naive() { return PyModule_Create(&module); }
"""

library = load_inline("softmax_naive", SOURCE, extra_cflags=["-O3"], no_implicit_headers=True)


class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        out = torch.empty_like(rows)
        if rows.numel():
            library.softmax(rows.data_ptr(), out.data_ptr(), *rows.shape)
        return out.reshape(x.shape)
