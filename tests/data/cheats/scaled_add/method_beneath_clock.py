# kind: exploit; class: timer-patch; expected: reject; needs: cpu
# why: The C code beneath time.perf_counter_ns is that of the thread's own clock now; the object is the very same.
import ctypes
import time

import torch.nn as nn


class Method(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class Function(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ssize_t), ("kind", ctypes.c_void_p), ("method", ctypes.POINTER(Method))]


def method(function):
    return Function.from_address(id(function)).method.contents


method(time.perf_counter_ns).code = method(time.thread_time_ns).code


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        return alpha * x + y
