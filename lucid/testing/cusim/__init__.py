"""Runs CUDA kernels on the CPU, from their unchanged source, and checks what they do.  See README.md."""

from .compiler import CompileError, available, cache_dir
from .coverage import FileCoverage, coverage, reset_coverage
from .module import KernelError, Module, Parameter, Report, Traffic

__all__ = [
    "CompileError",
    "FileCoverage",
    "KernelError",
    "Module",
    "Parameter",
    "Report",
    "Traffic",
    "available",
    "cache_dir",
    "coverage",
    "reset_coverage",
]
