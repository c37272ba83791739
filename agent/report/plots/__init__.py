"""Plots of a run as inline SVG: drawn here, coloured by the page's own style, nothing loaded."""
