"""Conversion of weights: quantise a Hugging Face folder, import a GGUF file."""

from .run import Report, convert

__all__ = ["Report", "convert"]
