"""What Macs could reach: bytes of a token over the bandwidth, plus a fixed cost a dependent dispatch.

A projection, not a measurement. Bandwidths are Apple's figures; 1.4 microseconds a dependent dispatch was
measured by others on M3 Pro and M5 Pro. Figures of other engines are quoted as published, on other builds
and settings.
"""

from __future__ import annotations

from collections.abc import Mapping

BANDWIDTH = {  # GB/s
    "M1": 68,
    "M1 Max": 400,
    "M2": 100,
    "M2 Max": 400,
    "M3": 100,
    "M3 Max": 400,
    "M3 Ultra": 819,
    "M4": 120,
    "M4 Pro": 273,
    "M4 Max": 546,
    "M5": 153,
    "M5 Pro": 307,
    "M5 Max": 614,
}
DISPATCH_US = 1.4

# GB a token with 1k of context in 4 bits, and dispatches a token, of models that are not counted here.
OTHERS = {
    "qwen3.6-35b-a3b": (1.81, 400),
    "qwen3.6-27b": (14.7, 600),
    "gemma4-26b-a4b": (2.14, 400),
    "gemma4-31b": (17.3, 600),
}
# tokens per second, M5 Max, 4 bits, as their authors published them
PUBLISHED = {
    "qwen3.6-35b-a3b": "mlx-lm 139, oMLX 122, llama.cpp Q4 85",
    "qwen3.6-27b": "mlx-lm 33",
    "gemma4-26b-a4b": "gmlx 143",
    "gemma4-31b": "gmlx 26",
}


def tokens_per_second(gigabytes: float, dispatches: float, bandwidth: float) -> float:
    """The projection; bandwidth in GB/s."""
    return 1 / (gigabytes / bandwidth + dispatches * DISPATCH_US * 1e-6)


def print_roofline(models: Mapping[str, tuple[float, float]]) -> None:
    """models: name -> (GB a token, dispatches a token)."""
    print("\nProjection, tokens per second (published bandwidth, 1.4 us a dispatch; not measured)\n")
    print(f"{'model':<18}{'GB':>7}" + "".join(f"{mac:>9}" for mac in BANDWIDTH))
    for name, (gigabytes, dispatches) in models.items():
        row = "".join(f"{tokens_per_second(gigabytes, dispatches, b):>9.0f}" for b in BANDWIDTH.values())
        print(f"{name:<18}{gigabytes:>7.2f}{row}")
    print("\nPublished by others, M5 Max, 4 bits:")
    for name, text in PUBLISHED.items():
        print(f"  {name}: {text}")
