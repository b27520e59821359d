"""`saragossa list`: the models in the cache, and whether they load."""

from __future__ import annotations

import argparse
import json
from typing import Any

from saragossa.cli.tables import size, table
from saragossa.models.parameters import Parameters
from saragossa.weights.locate import DEMO


def run(args: argparse.Namespace) -> int:
    """Print a table or a JSON array."""
    rows = models()
    if args.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    if not rows:
        print("no models yet: saragossa pull OWNER/NAME fetches one, saragossa run demo the demo model")
        return 0
    cells = [
        [
            row["model"],
            row["architecture"],
            row["quantization"],
            (row["parameters"] and str(Parameters(row["parameters"], row["active_parameters"]))) or "",
            size(row["bytes"]),
            "yes" if row["supported"] else f"no: {row['problem']}",
        ]
        for row in rows
    ]
    print(
        table(["model", "architecture", "quantisation", "parameters", "size", "supported"], cells, right=[4])
    )
    return 0


def models() -> list[dict[str, Any]]:
    """The demo model, where it was fetched, and those of the Hub's cache."""
    from saragossa.weights.checkpoint import describe
    from saragossa.weights.demo import demo_folder
    from saragossa.weights.hub import list_cached

    found = [(model.repo, model.revision, model.path, model.nbytes) for model in list_cached()]
    if demo_folder().is_dir():
        found.insert(0, (DEMO, "", demo_folder(), 0))
    rows = []
    for name, revision, path, nbytes in found:
        about = describe(path)
        rows.append(
            {
                "model": name,
                "revision": revision,
                "architecture": about.model_type,
                "quantization": about.quantization,
                "parameters": about.parameters and about.parameters.total,
                "active_parameters": about.parameters and about.parameters.active,
                "bytes": nbytes or about.nbytes,
                "supported": about.supported,
                "problem": about.problem,
                "path": str(path),
            }
        )
    return rows
