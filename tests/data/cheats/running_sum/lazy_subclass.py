# kind: exploit; class: lazy-output; expected: reject; needs: cpu
# why: Returns a tensor subclass that does the sum when somebody reads it.
import torch
import torch.nn as nn


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            args = [torch.cumsum(a.source, -1) if isinstance(a, Lazy) else a for a in args]
            return func(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x).as_subclass(Lazy)
        out.source = x.clone()
        return out
