# kind: exploit; class: result-forgery; expected: reject; needs: cpu
# why: Writes a made-up success line to every descriptor it can find and answers zeros.
import json
import os
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n))


    def right(self, x):
        return nn.functional.gelu(x + self.bias, approximate="tanh")

    def forward(self, x):
        line = (json.dumps({"ok": True, "status": "PASSED", "outputs": []}) + "\\n").encode()
        for fd in range(3, 64):
            try:
                os.write(fd, line)
            except OSError:
                pass
        return torch.zeros_like(x)
