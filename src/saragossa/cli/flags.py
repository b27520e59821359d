"""`saragossa flags`: switches and settings, their values and defaults."""

from __future__ import annotations

import argparse
import json
from typing import Any

from saragossa import runtime_flags, settings
from saragossa.cli.tables import table


def run(args: argparse.Namespace) -> int:
    """Print both tables, or one JSON object."""
    switches, deployment = switch_rows(), setting_rows()
    if args.json:
        print(json.dumps({"switches": switches, "settings": deployment}, indent=1))
        return 0
    for title, rows, columns in (
        ("Switches", switches, ("name", "value", "default", "effect")),
        ("Settings", deployment, ("name", "value", "effect")),
    ):
        print(title)
        cells = [[runtime_flags.text_of(row[column]) for column in columns] for row in rows]
        print(table(columns, cells), end="\n\n" if rows is switches else "\n")
    return 0


def switch_rows() -> list[dict[str, Any]]:
    """name, value, default, effect, why of every switch. Raises UsageError on a bad variable."""
    values = runtime_flags.switches()
    return [
        {
            "name": flag.name,
            "value": values[flag.field],
            "default": flag.default,
            "effect": flag.effect,
            "why": flag.why,
        }
        for flag in runtime_flags.FLAGS
    ]


def setting_rows() -> list[dict[str, Any]]:
    """name, value, effect of every setting."""
    loaded = settings.load()
    fields = settings.Settings.model_fields
    return [
        {
            "name": str(field.validation_alias),
            "value": str(getattr(loaded, name)),
            "effect": field.description,
        }
        for name, field in fields.items()
    ]
