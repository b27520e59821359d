"""Arrows between the layers of both languages point one way; `import saragossa` is quick."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "check_layers.py"


def check(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True, check=False)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


GOOD = {
    "metal/params/sample.h": "#pragma once\n",
    "csrc/core/errors.h": "#include <string>\n",
    "csrc/device.h": '#include "core/errors.h"\n',
    "csrc/device.cpp": '#include "cpu/cpu_device.h"\n',
    "csrc/encoder.h": '#include "device.h"\n#include "params/sample.h"\n',
    "csrc/cpu/cpu_device.h": '#include "encoder.h"\n',
    "csrc/nn/decoder.h": '#include "encoder.h"\n',
}


def test_this_repository() -> None:
    done = check(ROOT)
    assert (done.returncode, done.stdout) == (0, "")


def test_arrows_that_point_down_pass(tmp_path: Path) -> None:
    done = check(tree(tmp_path, GOOD))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (
            "csrc/nn/decoder.h",
            '#pragma once\n#include "cpu/cpu_device.h"\n',
            "csrc/nn/decoder.h:2: nn includes cpu/",
        ),
        ("csrc/cpu/x.cpp", '#include "nn/decoder.h"\n', "csrc/cpu/x.cpp:1: cpu includes nn/"),
        ("csrc/core/x.cpp", '#include "device.h"\n', "csrc/core/x.cpp:1: core includes device.h"),
        ("csrc/device.h", '#include "cpu/cpu_device.h"\n', "csrc/device.h:1: device includes cpu/"),
        ("csrc/nn/x.cpp", '#include "decoder.h"\n', "csrc/nn/x.cpp:1: decoder.h is no file"),
        ("csrc/cpu/x.cpp", '#include "core/none.h"\n', "csrc/cpu/x.cpp:1: core/none.h is no file"),
        ("csrc/new/x.cpp", "", "csrc/new/x.cpp: no layer has this file"),
    ],
)
def test_violations_are_named(tmp_path: Path, name: str, text: str, found: str) -> None:
    done = check(tree(tmp_path, {**GOOD, name: text}))
    assert done.returncode == 1
    assert done.stdout.startswith(found)
    assert done.stdout.count("\n") == 1


def test_importing_the_package_is_quick() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import saragossa"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # CPU time, the interpreter's own start included: other programs may have the core.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.15


def _imports(tree: ast.Module, module: str) -> Iterator[str]:
    """Modules of ours that a file imports, function bodies included; those for the type checker are not."""
    only_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in only_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "saragossa":
            yield from (f"saragossa.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            yield ".".join([*package, *([node.module] if node.module else [])])


def test_packages_import_each_other_one_way() -> None:
    arrows: dict[str, set[str]] = {}
    for path in sorted((ROOT / "src" / "saragossa").rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        if len(parts) < 3 and parts[1].startswith("__"):
            continue  # the package itself loads its names late
        found = _imports(ast.parse(path.read_text()), ".".join(parts))
        targets = {name.split(".")[1] for name in found if name.startswith("saragossa.")}
        arrows.setdefault(parts[1], set()).update(targets - {parts[1], "_core"})
    assert len(arrows) > 8
    order = TopologicalSorter(arrows)
    order.prepare()  # raises CycleError that names the circle


def test_one_module_recognises_git_lfs_pointers() -> None:
    sources = sorted((ROOT / "src" / "saragossa").rglob("*.py"))
    assert [path.name for path in sources if "version https://git-lfs" in path.read_text()] == ["files.py"]
