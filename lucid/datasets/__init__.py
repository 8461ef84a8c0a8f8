"""Small data sets that travel with the package, as NumPy arrays."""

from ._digits import digits, digits_split

__all__ = ["digits", "digits_split"]
