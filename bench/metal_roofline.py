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
    "M5 Ultra": 1200,
}
DISPATCH_US = 1.4

# Decoded tokens per second of other engines in 4 bits, without speculation, from public sources;
# some are known only as a share of the bandwidth's ceiling and are rounded from that.
PUBLISHED = {
    ("M1 Ultra", "qwen3.6-35b-a3b"): "vllm-metal 57",
    ("M3 Ultra", "qwen3.6-35b-a3b"): "oMLX 122",
    ("M4 Max", "gemma-4-26b-a4b"): "mlx-serve 117",
    ("M5 Max", "qwen3.6-35b-a3b"): "an engine in Rust 146, mlx-lm 139, oMLX 122, llama.cpp Q4 85",
    ("M5 Max", "qwen3.6-27b"): "mlx-lm 33",
    ("M5 Max", "gemma-4-26b-a4b"): "gmlx 143",
    ("M5 Max", "gemma-4-31b"): "gmlx 26",
}


def tokens_per_second(gigabytes: float, dispatches: float, bandwidth: float) -> float:
    """The projection; bandwidth in GB/s."""
    return 1 / (gigabytes / bandwidth + dispatches * DISPATCH_US * 1e-6)


def print_roofline(models: Mapping[str, tuple[float, float]], context: int) -> None:
    """models: name -> (GB a token, dispatches a token). A Markdown table: a row a Mac, a column a model."""
    print(f"\nProjection behind {context:,} tokens, tokens per second, not measured")
    print(f"(published bandwidth, {DISPATCH_US} us a dispatch)\n")
    told: dict[str, str] = {}
    for (mac, name), text in PUBLISHED.items():
        if name in models:
            told[mac] = "; ".join([*filter(None, [told.get(mac)]), f"{name}: {text}"])
    cells = ["Mac", "GB/s", *(f"{name} ({size:.2f} GB)" for name, (size, _) in models.items())]
    if told:
        cells.append("published by others, 4 bits")
    print("| " + " | ".join(cells) + " |")
    print("|---" * len(cells) + "|")
    for mac, bandwidth in BANDWIDTH.items():
        row = [f"{tokens_per_second(*model, bandwidth):.0f}" for model in models.values()]
        row += [told.get(mac, "")] if told else []
        print("| " + " | ".join([mac, str(bandwidth), *row]) + " |")
