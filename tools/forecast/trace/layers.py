"""``torch.nn`` layers, and what ``torch.compile`` makes of a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilecast.tools.forecast.trace.host_op import HostOp
from tilecast.tools.forecast.trace.products import each_of
from tilecast.tools.forecast.trace.values import (
    UNKNOWN,
    Instance,
    Ref,
    Tensor,
    dtype_of,
)


def layer(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A ``torch.nn`` layer with the parameters it owns; a Parameter is its tensor."""
    if name == "Parameter":
        return args[0] if args else kwargs.get("data", UNKNOWN)
    dtype = (dtype_of(kwargs["dtype"].path) if isinstance(kwargs.get("dtype"), Ref) else None) or "float32"
    ints = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    made_with: dict[str, Any] = {"eps": kwargs.get("eps", 1e-5)}
    if (name == "LayerNorm" and args) or (name in ("RMSNorm",) and args):
        shape = tuple(args[0]) if isinstance(args[0], tuple | list) else (args[0],)
        if all(isinstance(n, int) for n in shape):
            made_with |= {"weight": Tensor(shape, dtype), "bias": Tensor(shape, dtype), "normalized_shape": shape}
    elif name == "Linear" and len(ints) > 1:
        made_with |= {"weight": Tensor((ints[1], ints[0]), dtype), "in_features": ints[0], "out_features": ints[1]}
        made_with["bias"] = Tensor((ints[1],), dtype) if kwargs.get("bias", True) is not False else None
    elif name.startswith("Conv") and len(ints) > 1:
        k = kwargs.get("kernel_size", args[2] if len(args) > 2 else 1)
        made_with |= {
            "weight": Tensor((ints[1], ints[0], *each_of(k, int(name[4]) if name[4:5].isdigit() else 2, 1)), dtype)
        }
        made_with |= {
            key: kwargs.get(key, args[at] if len(args) > at else default)
            for key, at, default in (("stride", 3, 1), ("padding", 4, 0))
        }
        made_with["bias"] = Tensor((ints[1],), dtype) if kwargs.get("bias", True) is not False else None
    elif name in ("GroupNorm", "BatchNorm1d", "BatchNorm2d", "InstanceNorm2d") and ints:
        made_with |= {"weight": Tensor((ints[-1],), dtype), "bias": Tensor((ints[-1],), dtype), "num_groups": ints[0]}
    elif name in ("Embedding", "EmbeddingBag") and len(ints) > 1:
        made_with |= {"weight": Tensor((ints[0], ints[1]), dtype)}
    elif name in ("Sequential", "ModuleList"):
        made_with["items"] = list(args[0]) if args and isinstance(args[0], list) else list(args)
    return Instance(name, made_with)


LAYER_FUNCTION = {
    "Linear": "linear",
    "LayerNorm": "layer_norm",
    "RMSNorm": "rms_norm",
    "GroupNorm": "group_norm",
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "CrossEntropyLoss": "cross_entropy",
    "Embedding": "embedding",
    "EmbeddingBag": "embedding_bag",
    "BatchNorm1d": "batch_norm",
    "BatchNorm2d": "batch_norm",
}


def layer_call(target: Instance, args: list[Any]) -> tuple[str, list[Any], dict[str, Any]]:
    """The functional form of ``layer(x)``."""
    own = [v for k in ("weight", "bias") if isinstance(v := target.attributes.get(k), Tensor)]
    name = LAYER_FUNCTION.get(target.kind) or ("conv" if target.kind.startswith("Conv") else target.kind.lower())
    extra: dict[str, Any] = {k: target.attributes[k] for k in ("stride", "padding") if k in target.attributes}
    return name, [*args, *own], extra if name == "conv" else {}


def fuse(events: list[Any], args: Sequence[Any], result: Any) -> list[Any]:
    """What a compiler leaves of a function: library calls and scans as they are, all else as one pass over its ends."""
    kept = [e for e in events if not isinstance(e, HostOp) or e.kind in ("library", "scan")]
    rest = [e for e in events if isinstance(e, HostOp) and e.kind not in ("library", "scan")]
    if not rest:
        return kept
    ends = [a for a in [*args, *(result if isinstance(result, tuple | list) else [result])] if isinstance(a, Tensor)]
    moved: float = sum({t.storage: t.nbytes for t in ends}.values())
    gathers = sum(e.bytes / 2 for e in rest if e.kind == "gather")
    if gathers:
        touched = {s for e in rest if e.kind == "gather" for s in e.reads}
        moved = gathers + sum({t.storage: t.nbytes for t in ends if t.storage not in touched}.values())
    reads = tuple(t.storage for t in ends)
    passes = 1 + 0.5 * sum(e.kind in ("reduce", "native") for e in rest)
    return [
        *kept,
        HostOp(
            "fused",
            "fused",
            min(moved * min(passes, 2.0), sum(e.bytes for e in rest) or moved),
            sum(e.flops for e in rest),
            reads,
            rest[0].dtype,
        ),
    ]
