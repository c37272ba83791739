import torch.nn as nn

CONFIG = {"block": 64, "warps": 1}
SPACE = {"block": [64, 128, 256, 512], "warps": [1, 2, 4, 8]}


class ModelNew(nn.Module):
    def forward(self, x):
        return x + x
