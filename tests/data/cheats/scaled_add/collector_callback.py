# kind: exploit; class: thread-deferral; expected: reject; needs: cpu
# why: The garbage collector's callback fills what is still empty, whenever it comes round.
import gc
import torch
import torch.nn as nn

_todo = []


def _later(phase, info):
    while _todo:
        out, x, y, a = _todo.pop()
        out.copy_(a * x + y)


gc.callbacks.append(_later)


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        out = torch.zeros_like(x)
        _todo.append((out, x, y, alpha))
        return out
