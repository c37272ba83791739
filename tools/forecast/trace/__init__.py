"""What a candidate does, read from its text: launches, tiles and traffic, by interpreting a subset of Python on shapes.

No user code is executed: an evaluator of its own walks the syntax tree over abstract tensors, under limits on steps and time.
"""

from __future__ import annotations

from tilecast.tools.forecast.trace.program import LaunchTrace, ProblemTrace, Trace, trace_candidate, trace_problem

__all__ = ["LaunchTrace", "ProblemTrace", "Trace", "trace_candidate", "trace_problem"]
