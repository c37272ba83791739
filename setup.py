"""Maps the top-level folders to `tilecast.*` import names; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

ROOTS = ["agent", "tools", "prompts", "sandbox"]
found = [package for root in ROOTS for package in [root, *(f"{root}.{sub}" for sub in find_packages(root))]]
setup(packages=[f"tilecast.{package}" for package in found], package_dir={f"tilecast.{root}": root for root in ROOTS})
