"""Write the Metal kernels into one C++ file, each with its headers inlined.

Run-time compilation on a Mac resolves no project includes: the text that a GPU gets must be whole.

    python tools/embed_metal.py metal OUT.cpp
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"\s*$')
CHUNK = 12_000  # bytes of one string literal; compilers promise 65,536 only


def inlined(path: Path, root: Path, seen: set[Path]) -> str:
    """The text of `path`; each project header once, where it is first included."""
    out: list[str] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match is None:
            if line.strip() != "#pragma once":
                out.append(line)
            continue
        header = root / match[1]
        if not header.is_file():
            raise SystemExit(f"{path}:{number}: no header {header}")
        if header not in seen:
            seen.add(header)
            out.append(inlined(header, root, seen))
            out.append(f'#line {number + 1} "{path.relative_to(root)}"')
    return "\n".join([f'#line 1 "{path.relative_to(root)}"', *out]) + "\n"


def literal(text: str) -> str:
    """Raw string literals that make up `text`."""
    parts, part = [], ""
    for line in text.splitlines(keepends=True):
        if len(part) + len(line) > CHUNK:
            parts.append(part)
            part = ""
        part += line
    return "\n".join(f'R"MSL({part})MSL"' for part in [*parts, part])


def main() -> None:
    root, target = Path(sys.argv[1]), Path(sys.argv[2])
    rows = []
    for file in sorted(root.glob("*.metal")):
        text = inlined(file, root, set())
        rows.append(
            f'    {{"{file.stem}",\n{literal(text)},\n     "{hashlib.sha256(text.encode()).hexdigest()}"}},'
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    body = "\n".join(rows)
    text = (
        "// Made by tools/embed_metal.py from metal/*.metal.\n"
        '#include "metal/kernels.h"\n\n'
        "namespace saragossa::metal {\nnamespace {\n\n"
        f"constexpr KernelSource kSources[] = {{\n{body}\n}};\n\n"
        "}  // namespace\n\nstd::span<const KernelSource> kernel_sources() { return kSources; }\n\n"
        "}  // namespace saragossa::metal\n"
    )
    if not target.is_file() or target.read_text() != text:
        target.write_text(text)


if __name__ == "__main__":
    main()
