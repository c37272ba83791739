"""What measurements of this run say of the candidates not yet measured: a Gaussian process on the model's residuals.

A residual, divided by its predicted spread, is taken as the sum of four independent parts: one shared by the whole problem, one
by the family (one source, many CONFIGs), one by candidates that the trees cannot tell apart (their leaf overlap is the kernel), and
noise. The shares are fitted on problems that the model had not seen (Rasmussen & Williams 2006, ch. 2 and 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilecast.tools.forecast.model import Correlation

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

OUTLIER = 3.0
"""Standardised residuals are cut here before they move anything: one absurd measurement must not carry the problem away."""


def covariance(similarity: Floats, same_family: npt.NDArray[np.bool_], shares: Correlation) -> Floats:
    """Covariance of standardised residuals between two sets of candidates, without noise: (n, m)."""
    result: Floats = shares.problem + shares.family * same_family + shares.similar * similarity**shares.power
    return result


@dataclass(frozen=True)
class Posterior:
    """Mean shift and variance factor of each candidate's standardised residual, and their covariance."""

    shift: Floats
    covariance: Floats
    """Without noise."""
    noise: float

    @property
    def deviation(self) -> Floats:
        """Standard deviation of each standardised residual, noise included."""
        result: Floats = np.sqrt(np.maximum(np.diag(self.covariance), 0.0) + self.noise)
        return result


def condition(prior: Floats, shares: Correlation, measured: Labels, residuals: Floats) -> Posterior:
    """Posterior over all candidates given the standardised residuals of some.

    ``prior`` is :func:`covariance` of all candidates with themselves; ``measured`` are indices into it.
    """
    if not len(measured):
        return Posterior(np.zeros(len(prior)), prior, shares.noise)
    seen = np.clip(residuals, -OUTLIER, OUTLIER)
    block = prior[np.ix_(measured, measured)] + (shares.noise + 1e-6) * np.eye(len(measured))
    gain = np.linalg.solve(block, prior[measured]).T
    return Posterior(gain @ seen, prior - gain @ prior[measured], shares.noise)


def log_likelihood(
    similarity: Floats, same_family: npt.NDArray[np.bool_], residuals: Floats, shares: Correlation
) -> float:
    """Log marginal likelihood of one problem's standardised residuals under these shares."""
    seen = np.clip(residuals, -OUTLIER, OUTLIER)
    matrix = covariance(similarity, same_family, shares) + (shares.noise + 1e-6) * np.eye(len(seen))
    factor = np.linalg.cholesky(matrix)
    white = np.linalg.solve(factor, seen)
    return float(-0.5 * white @ white - np.log(np.diag(factor)).sum() - 0.5 * len(seen) * np.log(2 * np.pi))


PRIOR_COUNT = 6.0
"""Weight of the belief that intervals are right, in measurements."""

INFLATION_RANGE = (0.7, 2.0)


def inflation(prior: Floats, shares: Correlation, measured: Labels, residuals: Floats) -> float:
    """Factor on all spreads from how far measurements fell from what the others said of them.

    Leave-one-out residuals of the process, standardised, have variance 1 if intervals are honest (Rasmussen & Williams 2006,
    eq. 5.12); their mean square is shrunk to 1 by :data:`PRIOR_COUNT` and bounded.
    """
    if not len(measured):
        return 1.0
    block = prior[np.ix_(measured, measured)] + (shares.noise + 1e-6) * np.eye(len(measured))
    inverse = np.linalg.inv(block)
    left_out = (inverse @ residuals) / np.sqrt(np.diag(inverse))
    square = float(np.minimum(left_out**2, OUTLIER**2).sum())
    factor = np.sqrt((PRIOR_COUNT + square) / (PRIOR_COUNT + len(measured)))
    return float(np.clip(factor, *INFLATION_RANGE))
