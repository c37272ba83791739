"""Timing: paired sampling of two workers, clocks that must agree, statistics, physics, and the state of the device meanwhile."""
