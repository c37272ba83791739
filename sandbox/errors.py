"""Errors that cross from the sandbox to its callers: each names the value, the limit and the remedy.

A candidate that fails is a value (an :class:`~tilecast.sandbox.schema.EvaluationStatus`); these are for what stops the work.
"""

from __future__ import annotations


class TilecastError(Exception):
    """Something a user can act on. ``exit_code`` is the process's answer when nobody handles it."""

    exit_code = 3


class UsageError(TilecastError):
    """Wrong usage or configuration: exit code 2."""

    exit_code = 2


class ProblemError(UsageError):
    """The problem file is unusable: missing, not Python, or lacking a required name."""


class InvalidReference(ProblemError):
    """The reference itself is no ground for a judgement: it fails, is random, or does not depend on its inputs."""


class CandidateError(UsageError):
    """The candidate file named by the user is unusable before it is even run (missing, unreadable)."""


class EnvironmentFailure(TilecastError):
    """This machine cannot do what was asked (no GPU, no sandbox, a provider that is down): exit code 3."""


class NothingMeasured(TilecastError):
    """The answer is no: nothing could be measured. Exit code 1."""

    exit_code = 1


class WorkLeft(EnvironmentFailure):
    """Waiting was given up; the work goes on elsewhere and its result can be had later. Exit code 130."""

    exit_code = 130
