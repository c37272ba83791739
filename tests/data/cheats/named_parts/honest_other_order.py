# kind: honest; class: honest-named-outputs; expected: accept; needs: cpu
# why: Puts the same names into its dict in another order, and tuples in place of lists.
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, xs, alpha):
        total, parts = torch.zeros_like(xs[0]), []
        for x in xs:
            total.add_(x)
            parts.append(x + 1)
        return {"parts": tuple(parts), "sum": total.mul_(alpha)}
