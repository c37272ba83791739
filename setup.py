"""Maps the top-level folders to `tilecast.*` import names; everything else is in pyproject.toml."""

import warnings

from setuptools import find_packages, setup

# Said of every editable installation whose folders are mapped to other names. It warns of a folder in the working directory
# that is called as the package is; there is none here.
warnings.filterwarnings("ignore", message="Editable installation")

ROOTS = ["agent", "tools", "prompts", "sandbox"]
found = [package for root in ROOTS for package in [root, *(f"{root}.{sub}" for sub in find_packages(root))]]
setup(packages=[f"tilecast.{package}" for package in found], package_dir={f"tilecast.{root}": root for root in ROOTS})
