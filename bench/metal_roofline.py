"""What Macs could reach: bytes of a token over the bandwidth, plus a fixed cost a dependent dispatch.

A projection, not a measurement. Bandwidths are Apple's figures; 1.4 microseconds a dependent dispatch was
measured by others on M3 Pro and M5 Pro. Figures of other engines are quoted as published, on other builds
and settings.
"""

from __future__ import annotations

from collections.abc import Mapping

BANDWIDTH = {  # GB/s; where a chip was sold with two, the larger one
    "M1": 68,
    "M1 Pro": 200,
    "M1 Max": 400,
    "M1 Ultra": 800,
    "M2": 100,
    "M2 Pro": 200,
    "M2 Max": 400,
    "M2 Ultra": 800,
    "M3": 100,
    "M3 Pro": 150,
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
# Decoded tokens per second of other engines in 4 bits, without speculation, from public sources;
# some are known only as a share of the bandwidth's ceiling and are rounded from that.
PUBLISHED = {
    ("M1 Ultra", "qwen3.6-35b-a3b"): "vllm-metal 57",
    ("M3 Ultra", "qwen3.6-35b-a3b"): "oMLX 122",
    ("M4 Max", "gemma4-26b-a4b"): "mlx-serve 117",
    ("M5 Max", "qwen3.6-35b-a3b"): "mlx-lm 139, oMLX 122, llama.cpp Q4 85",
    ("M5 Max", "qwen3.6-27b"): "mlx-lm 33",
    ("M5 Max", "gemma4-26b-a4b"): "gmlx 143",
    ("M5 Max", "gemma4-31b"): "gmlx 26",
}


def tokens_per_second(gigabytes: float, dispatches: float, bandwidth: float) -> float:
    """The projection; bandwidth in GB/s."""
    return 1 / (gigabytes / bandwidth + dispatches * DISPATCH_US * 1e-6)


def print_roofline(models: Mapping[str, tuple[float, float]]) -> None:
    """models: name -> (GB a token, dispatches a token). A Markdown table: a row a Mac, a column a model."""
    print("\nProjection, tokens per second (published bandwidth, 1.4 us a dispatch; not measured)\n")
    cells = ["Mac", "GB/s", *(f"{name} ({size:.2f} GB)" for name, (size, _) in models.items())]
    print("| " + " | ".join([*cells, "published by others, 4 bits"]) + " |")
    print("|---" * (len(cells) + 1) + "|")
    for mac, bandwidth in BANDWIDTH.items():
        row = [f"{tokens_per_second(*model, bandwidth):.0f}" for model in models.values()]
        told = [f"{model}: {text}" for (where, model), text in PUBLISHED.items() if where == mac]
        print("| " + " | ".join([mac, str(bandwidth), *row, "; ".join(told)]) + " |")
