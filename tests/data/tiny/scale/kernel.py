import torch.nn as nn

CONFIG = {"block": 64, "warps": 1, "stages": 1}
SPACE = {"block": [64, 128, 256, 512], "warps": [1, 2, 4, 8], "stages": [1, 2, 3, 4]}


class ModelNew(nn.Module):
    def forward(self, x):
        return x + x
