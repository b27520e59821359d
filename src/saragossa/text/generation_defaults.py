"""Sampling defaults of a checkpoint: generation_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from saragossa.errors import ConfigError
from saragossa.files import read_optional_object

FILE = "generation_config.json"
MAX_TOP_K = 1 << 20
MAX_TEMPERATURE = 2.0
MAX_REPETITION_PENALTY = 10.0


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """What the checkpoint's authors advise; None where the file says nothing."""

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None  # 0: off
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    @classmethod
    def from_dir(cls, path: str | Path) -> GenerationDefaults:
        """Read generation_config.json of a model folder; all None if there is no such file."""
        file = Path(path) / FILE
        return cls.from_config(read_optional_object(file, error=ConfigError), source=str(file))

    @classmethod
    def from_config(cls, config: Mapping[str, object], *, source: str = FILE) -> GenerationDefaults:
        """Read the keys above from a parsed file; others are ignored, a bad value is a ConfigError."""
        do_sample = config.get("do_sample")
        if do_sample is not None and not isinstance(do_sample, bool):
            raise ConfigError(f"{source}: do_sample is {do_sample!r}, true or false is expected")
        top_k = config.get("top_k")
        if top_k is not None and (
            isinstance(top_k, bool) or not isinstance(top_k, int) or not 0 <= top_k <= MAX_TOP_K
        ):
            raise ConfigError(f"{source}: top_k is {top_k!r}, a whole number from 0 on is expected")

        def number(key: str, low: float, high: float, *, above: bool = False) -> float | None:
            value = config.get(key)
            if value is None:
                return None
            accepted = f"a number {'above' if above else 'from'} {low:g} to {high:g} is expected"
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"{source}: {key} is {value!r}, {accepted}")
            if not low <= value <= high or (above and value == low):  # NaN is refused here
                raise ConfigError(f"{source}: {key} is {value!r}, {accepted}")
            return float(value)

        return cls(
            do_sample=do_sample,
            temperature=number("temperature", 0, MAX_TEMPERATURE),
            top_k=top_k,
            top_p=number("top_p", 0, 1, above=True),
            min_p=number("min_p", 0, 1),
            repetition_penalty=number("repetition_penalty", 0.01, MAX_REPETITION_PENALTY),
        )
