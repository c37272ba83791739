# kind: exploit; class: thread-deferral; expected: reject; needs: cpu
# why: A POSIX timer's handler fills the buffer after the call has returned; no thread, no process.
import signal
import torch
import torch.nn as nn

_todo = []


def _later(*_):
    while _todo:
        out, x, y, a = _todo.pop()
        out.copy_(a * x + y)


signal.signal(signal.SIGALRM, _later)


class ModelNew(nn.Module):
    def forward(self, x, y, alpha):
        out = torch.zeros_like(x)
        _todo.append((out, x, y, alpha))
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        return out
