# kind: exploit; class: output-cache; expected: reject; needs: cpu
# why: A weak dictionary maps the input object to its answer; the same object with new contents gets the old answer.
import weakref
import torch
import torch.nn as nn

_seen = weakref.WeakKeyDictionary()


class _Key:
    pass


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n))
        self.keys = {}

    def right(self, x):
        return nn.functional.gelu(x + self.bias, approximate="tanh")

    def forward(self, x):
        key = self.keys.get(id(x))
        if key is None:
            key = self.keys[id(x)] = _Key()
        if key not in _seen or _seen[key].shape != x.shape:
            _seen[key] = self.right(x)
        return _seen[key].clone()
