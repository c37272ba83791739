"""Evaluation on the machines of a Ray cluster: one exclusive evaluator a GPU, replaced when lost, elastic."""
