"""Compare a candidate's outputs with the expected ones: structure first, then values. Vectorised, in chunks of rows.

:func:`compare_structure` reads what the worker *says* about its outputs (plain dicts); :func:`compare_values` reads
the bytes that arrived in the
judge's own buffers. Both return a :class:`Comparison`, whose reason names output, index, expected and got.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tilecast.sandbox.harness.judge.bounds import Allowed, arithmetic_unit, as_rows, nonfinite_kinds, readable
from tilecast.sandbox.harness.judge.oracle import Answer, OutputAnswer, default_tolerance
from tilecast.sandbox.harness.judge.structure import Comparison, OutputClaim, compare_structure, wrong_output
from tilecast.sandbox.harness.judge.ties import names_equal_elements

CHUNK_ELEMENTS = 1 << 24
_MOST_IN_BLAS = (1 << 31) - 1
_KIND_NAMES = ("a finite number", "NaN", "+inf", "-inf")


def compare_values(answer: Answer, got: Sequence[Tensor], where: str = "") -> Comparison:
    """Judge the values. ``got`` has the expected shapes and dtypes (views of the judge's buffers); ``where`` opens
    the reason.
    """
    worst_error, worst_ratio = None, 0.0
    for index, (want, have) in enumerate(zip(answer.outputs, got, strict=True)):
        if tuple(have.shape) != want.shape or have.dtype is not want.dtype:
            return wrong_output("INCORRECT_SHAPE", index, f"shape {list(have.shape)} {have.dtype}", where)
        if want.elements == 0:
            continue
        result = _compare_exact(answer, want, have, got, index) if want.allowed is None else _real(answer, want, have)
        worst_ratio = max(worst_ratio, result.ratio)
        if result.error is not None:
            worst_error = max(worst_error or 0.0, result.error)
        if not result.passed:
            return wrong_output(result.status, index, result.reason, where, worst_error, worst_ratio)
    return Comparison("PASSED", "", worst_error, worst_ratio)


def alike(first: Tensor, second: Tensor) -> bool:
    """Equal up to what the order of atomic additions may change (a third of the type's default tolerance)."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if not (first.dtype.is_floating_point or first.dtype.is_complex):
        return torch.equal(first, second)
    wide = torch.complex128 if first.dtype.is_complex else torch.float64
    a, b = first.to(wide), second.to(wide)
    if not torch.equal(torch.isfinite(a), torch.isfinite(b)):
        return False
    size = float(torch.linalg.vector_norm(torch.nan_to_num(a, posinf=0.0, neginf=0.0)))
    gap = float(torch.linalg.vector_norm(torch.nan_to_num(a - b, posinf=0.0, neginf=0.0)))
    return gap <= default_tolerance(first.dtype) / 3 * size


def compare(answer: Answer, got: Sequence[Tensor], where: str = "") -> Comparison:
    """Structure and values of real tensors in one go (tests, mutation checks)."""
    want = [OutputClaim(item.shape, str(item.dtype).removeprefix("torch.")) for item in answer.outputs]
    result = compare_structure(want, [OutputClaim.of(item) for item in got])
    if not result.passed:
        return wrong_output(result.status, None, result.reason, where)
    return compare_values(answer, got, where)


def _real(answer: Answer, want: OutputAnswer, have: Tensor) -> Comparison:
    """One floating output."""
    assert want.allowed is not None
    rows = as_rows(have)
    right = _plainly_right(want, want.allowed, rows)
    if right is not None:
        return right
    tally = _Tally(want, want.allowed)
    for start, stop in _chunks(rows):
        bad = tally.add(answer, rows[start:stop], start, stop)
        if bad:
            return Comparison("INCORRECT_NUMERICAL", bad, tally.relative_error, math.inf)
    return tally.verdict()


def _chunks(rows: Tensor) -> Iterator[tuple[int, int]]:
    step = max(1, CHUNK_ELEMENTS // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], step):
        yield start, min(start + step, rows.shape[0])


def _plainly_right(want: OutputAnswer, allowed: Allowed, rows: Tensor) -> Comparison | None:
    """The verdict where all is finite, and right; None where it is to be found out by :class:`_Tally`.

    Most answers are right. This has the same figures, but neither says where the worst is nor looks at each on its own: half of
    the passes over memory, and one question to the device.
    """
    if want.kinds is not None or want.undecided is not None:
        return None
    found = []
    for start, stop in _chunks(rows):
        truth = want.truth[start:stop]
        error = readable(rows[start:stop]) - truth  # in float64, as the truth is
        norms = torch.linalg.vector_norm(error, dim=1)
        along, square_truth = _dot(error, truth), _dot(truth, truth)
        row = (norms / allowed.row_l2[start:stop]).amax()
        ratio = error.div_(torch.add(allowed.per_row[start:stop], truth.abs(), alpha=allowed.per_size))
        found.append(
            torch.stack([norms.square().sum(), square_truth, along, row, torch.linalg.vector_norm(ratio, math.inf)])
        )
    figures = torch.stack(found)
    sums, most = figures[:, :3].sum(0), figures[:, 3:].amax(0)
    square_error, square_truth, along, row, element = values = torch.cat([sums, most]).tolist()
    if not all(map(math.isfinite, values)):
        return None
    tally = _Tally(want, allowed, square_error, square_truth, along, (element, 0, 0.0), (row, 0, 0.0))
    verdict = tally.verdict()
    return verdict if verdict.passed else None


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Sum of products, without an array of them where BLAS can count the elements."""
    return torch.dot(a.flatten(), b.flatten()) if a.numel() <= _MOST_IN_BLAS else (a * b).sum()


@dataclass
class _Tally:
    """Accumulates errors over chunks of rows and keeps the worst of each kind.

    Attributes:
        square_error, square_truth, along: sums of squares, and of error times truth.
        element: worst ratio to what is allowed, where (flat), and what is allowed there.
        row: worst ratio to what is allowed, which row, and its error.
    """

    want: OutputAnswer
    allowed: Allowed
    square_error: float = 0.0
    square_truth: float = 0.0
    along: float = 0.0
    element: tuple[float, int, float] = (0.0, 0, 0.0)
    row: tuple[float, int, float] = (0.0, 0, 0.0)
    worst_got: float = 0.0

    @property
    def relative_error(self) -> float:
        if self.square_error == 0.0:
            return 0.0
        return math.sqrt(self.square_error / self.square_truth) if self.square_truth > 0 else math.inf

    def add(self, answer: Answer, rows: Tensor, start: int, stop: int) -> str:
        """Take in rows [start, stop); returns the reason if non-finite positions disagree."""
        truth = self.want.truth[start:stop]
        values = rows.to(torch.float64)
        kinds = None if self.want.kinds is None else self.want.kinds[start:stop]
        keep, reason = self._check_nonfinite(answer, rows, values, truth, kinds, start)
        if reason:
            return reason
        if keep is not None:
            values, truth = values.where(keep, 0.0), truth.where(keep, 0.0)
        error = values - truth
        self.along += float((error * truth).sum())
        error = error.abs_()
        limit = truth.abs().mul_(self.allowed.per_size).add_(self.allowed.per_row[start:stop])
        self.square_error += float(error.square().sum())
        self.square_truth += float(truth.square().sum())
        self._note_row(torch.linalg.vector_norm(error, dim=1), start, stop)
        ratio = error.div_(limit)
        place = int(ratio.argmax())
        worst = float(ratio.flatten()[place])
        if worst > self.element[0]:
            self.element = (worst, start * rows.shape[1] + place, float(limit.flatten()[place]))
            self.worst_got = float(values.flatten()[place])
        return ""

    def _note_row(self, norms: Tensor, start: int, stop: int) -> None:
        ratio = norms / self.allowed.row_l2[start:stop]
        place = int(ratio.argmax())
        if float(ratio[place]) > self.row[0]:
            self.row = (float(ratio[place]), start + place, float(norms[place]))

    def _check_nonfinite(
        self, answer: Answer, rows: Tensor, values: Tensor, truth: Tensor, kinds: Tensor | None, start: int
    ) -> tuple[Tensor | None, str]:
        """Which elements to compare as numbers (None: all), and the reason if NaN or inf stand in the wrong places."""
        have = nonfinite_kinds(rows)
        undecided = self.want.undecided
        if have is None and kinds is None and undecided is None:
            return None, ""
        if have is None:
            have = torch.zeros(values.shape, dtype=torch.int8, device=values.device)
        want = torch.zeros_like(have) if kinds is None else kinds
        wrong = have != want
        if answer.nonfinite != "match":
            wrong &= have != 1  # an honest kernel may let more NaN through than the reference
            if answer.nonfinite == "inf":
                wrong &= ~((want == 1) & (have != 0))
            depends = self.want.depends
            if depends is not None:
                wrong &= (want == 0) | depends[start : start + want.shape[0]]
            if undecided is not None:
                wrong &= ~undecided[start : start + want.shape[0]]
        elif self.want.recovered is not None:
            wrong &= ~self.want.recovers(values, start)
        wrong &= ~_overflow_either_way(truth, have, want, self.want.dtype)
        if bool(wrong.any()):
            place = int(wrong.flatten().to(torch.int8).argmax())
            expected = _KIND_NAMES[int(want.flatten()[place])]
            if expected == _KIND_NAMES[0]:
                expected = f"{float(truth.flatten()[place]):.6g}"
            got = float(values.flatten()[place])
            count = int(wrong.sum())
            index = _cell(self.want, start * want.shape[1] + place)
            return None, f"at {index} expected {expected}, got {got:.6g} ({count} such elements)"
        keep = (have == 0) & (want == 0)
        return keep if undecided is None else keep & ~undecided[start : start + keep.shape[0]], ""

    def verdict(self) -> Comparison:
        relative, cap = self.relative_error, self.allowed.cap
        cap_ratio = _cap_ratio(relative, cap, self.square_truth)
        ratio = max(self.element[0], self.row[0], cap_ratio, self._scale_ratio())
        if ratio <= 1.0:
            return Comparison("PASSED", "", relative if self.square_truth > 0 else 0.0, ratio)
        return Comparison("INCORRECT_NUMERICAL", self._reason(relative, cap_ratio), relative, ratio)

    def _scale_ratio(self) -> float:
        """How far all elements are off by one factor, in units of what is allowed."""
        return abs(self.along / self.square_truth) / self.allowed.scale if self.square_truth > 0 else 0.0

    def _reason(self, relative: float, cap_ratio: float) -> str:
        ratio, flat, limit = self.element
        columns = self.want.truth.shape[1]
        expected = float(self.want.truth[flat // columns, flat % columns])
        own = self.allowed.own_error
        text = (
            f"at {_cell(self.want, flat)} expected {expected:.9g}, got {self.worst_got:.9g}; allowed error {limit:.2g}"
        )
        if ratio <= 1.0 and self.row[0] > 1.0:
            off = f"row {self.row[1]} is off by {self.row[2]:.3g} (L2), {self.row[0]:.3g} times what is allowed"
            text = f"{off}; worst element {text}"
        elif ratio <= 1.0:
            text = (
                f"relative L2 error {relative:.3g} exceeds the tolerance {self.allowed.cap:.3g}; worst element {text}"
            )
        return f"{text} (relative L2 error {relative:.3g}; the reference's own is {own:.3g})"


def _cap_ratio(relative: float, cap: float, square_truth: float) -> float:
    """Relative L2 error over its cap; a truth that is all zero is left to the element bounds."""
    if relative == 0.0 or square_truth == 0.0:
        return 0.0
    return relative / cap if cap > 0 else math.inf


def _overflow_either_way(truth: Tensor, have: Tensor, want: Tensor, dtype: torch.dtype) -> Tensor:
    """Where the truth lies at the edge of the type's range one may overflow and the other not."""
    if dtype.is_complex:
        return torch.zeros_like(want, dtype=torch.bool)
    # Eight roundings; of eight bits that would be all of the range.
    edge = torch.finfo(dtype).max * max(0.5, 1 - 8 * max(torch.finfo(dtype).eps, arithmetic_unit(dtype)))
    beyond = truth.abs() >= edge
    sign = torch.where(truth > 0, 2, 3).to(torch.int8)
    return beyond & (((have == sign) & (want == 0)) | ((want == sign) & (have == 0)))


def _compare_exact(answer: Answer, want: OutputAnswer, have: Tensor, got: Sequence[Tensor], index: int) -> Comparison:
    """Integers and bools: equal to the reference, to the truth where the two differ, or naming an equal element
    (ties).
    """
    flat = have.reshape(-1)
    wrong = flat != want.truth
    for other in want.alternates:
        wrong &= flat != other
    if not bool(wrong.any()):
        return Comparison("PASSED", "", 0.0)
    if names_equal_elements(answer, index, have, got):
        return Comparison("PASSED", "", 0.0)
    place = int(wrong.to(torch.int8).argmax())
    cell = _cell(want, place)
    count = int(wrong.sum())
    detail = (
        f"at {cell} expected {want.truth[place].item()}, got {flat[place].item()} ({count} of {flat.numel()} differ)"
    )
    return Comparison("INCORRECT_NUMERICAL", detail, None, math.inf)


def _cell(want: OutputAnswer, flat: int) -> list[int]:
    """The index of a flat position, as a user would write it."""
    if want.dtype.is_complex:
        flat //= 2
    index = []
    for size in reversed(want.shape):
        index.append(flat % size)
        flat //= size
    return index[::-1]
