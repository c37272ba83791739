"""Plots of `docs/forecaster.md`: `tilecast study CORPUS --json > study.json; python docs/plot_forecaster.py study.json`.

Writes SVG into `docs/images/`. Needs matplotlib, which nothing else here does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent / "images"
SHARES = ("0.01", "0.05", "0.10", "0.25", "0.50")
COLOURS = {
    "random": "0.6",
    "roofline": "tab:brown",
    "learned": "tab:blue",
    "learned+online": "tab:green",
    "llm": "tab:orange",
    "ensemble": "tab:red",
}


def recovery(axis: Any, blocks: dict[str, Any], title: str) -> None:
    """Recovery by share measured, one line a policy."""
    for name, colour in COLOURS.items():
        if name in blocks:
            axis.plot(
                [float(q) for q in SHARES],
                [blocks[name]["recovery"][q] for q in SHARES],
                marker="o",
                label=name,
                color=colour,
            )
    axis.set(xscale="log", xlabel="share of the pool measured", ylabel="best speed found / pool's best", title=title)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def main() -> None:
    """All plots."""
    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    HERE.mkdir(exist_ok=True)
    plt.rcParams["svg.hashsalt"] = "tilecast"
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    recovery(left, {k: v for k, v in document["policies"].items() if v["pool"] == "all"}, "all variants")
    recovery(right, document["forecast_pools"], "variants with a recorded LLM forecast")
    save(figure, "recovery")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for name, points in document["reliability"].items():
        left.plot([p["confidence"] for p in points], [p["accuracy"] for p in points], marker="o", label=name)
    left.plot([0, 1], [0, 1], color="0.7", linestyle=":")
    left.set(xlabel="largest probability of a bin", ylabel="how often that bin came", title="reliability")
    for name, points in document["risk_coverage"].items():
        right.plot([p["coverage"] for p in points], [p["risk"] for p in points], marker="o", label=name)
    right.set(xlabel="share of forecasts kept, surest first", ylabel="share in the wrong bin", title="risk by coverage")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    save(figure, "calibration")
    figure, axis = plt.subplots(figsize=(10, 4))
    names = document["problems"]
    for offset, policy in ((-0.27, "random"), (0.0, "learned"), (0.27, "learned+online")):
        block = document["policies"][policy]["per_problem"]
        axis.bar(
            [i + offset for i in range(len(names))],
            [block[n]["evals_to_95"] for n in names],
            0.27,
            label=policy,
            color=COLOURS[policy],
        )
    axis.set(yscale="log", ylabel="evaluations to 95 % of the best", title="evaluations by problem")
    axis.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    axis.legend(fontsize=8)
    save(figure, "evaluations")


def save(figure: Any, name: str) -> None:
    """One SVG without a date in it."""
    figure.tight_layout()
    figure.savefig(HERE / f"forecaster_{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
