"""The repository keeps its own rules: what is locked, what is imported, what may stand in a file."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gossamer", "model", "service", "tests")

# What ties a file to one machine or one package index. The look-behinds keep paths from matching inside longer ones.
MACHINE_TRACES = {
    "home folder": re.compile(r"(?<![\w.])/(?:root|Users/\w+|home/(?!ray/|locust/)\w+)/"),
    "local folder": re.compile(r"(?<![\w.])/(?:opt|work|workspace|private)/"),
    "package index": re.compile(r"\b(?:pypi|pythonhosted)\.org|\bdownload\.pytorch\.|\bregistry\.(?:npmjs|yarnpkg)\."),
    "index option": re.compile(r"--(?:find-links|(?:extra-)?index-url|trusted-host)[ =](?!\"?\$)"),
    "this checkout": re.compile(re.escape(str(ROOT)) + r"\b"),
}


def read_pyproject():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read_lock():
    lines = (ROOT / "requirements/lock.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def list_tracked_files():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    output = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    files = (ROOT / name for name in output.decode().split("\0") if name)
    return [path for path in files if path.is_file()]


def import_in_fresh_process(package, unwanted, without=()):
    """Import every module of a package in a new interpreter, and return which unwanted modules that loaded."""
    code = f"""
import importlib, pkgutil, sys
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(getattr(package, "__path__", []), {package + "."!r}):
    if module.name not in {tuple(without)!r}:
        importlib.import_module(module.name)
print(*[name for name in {tuple(unwanted)!r} if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_lock_pins_each_package_exactly_once_and_for_any_machine():
    names = []
    for line in read_lock():
        # A local version such as +cpu would tie the lock to one build of torch.
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line), line
        names.append(canonicalize_name(line.partition("==")[0]))
    assert len(names) == len(set(names))


def test_every_dependency_is_locked_within_its_range():
    project = read_pyproject()["project"]
    requirements = list(project["dependencies"])
    for needed in project["optional-dependencies"].values():
        requirements += needed
    locked = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in read_lock())}

    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        if name == project["name"]:
            continue
        assert name in locked, f"{name} is not in requirements/lock.txt"
        assert locked[name] in requirement.specifier, f"{name} is locked at {locked[name]}, outside {requirement}"


def test_every_runtime_dependency_has_an_upper_bound():
    for requirement in map(Requirement, read_pyproject()["project"]["dependencies"]):
        operators = {specifier.operator for specifier in requirement.specifier}
        assert operators & {"==", "<", "~="}, f"{requirement} may become anything"


@pytest.mark.parametrize(
    ("package", "unwanted"),
    [
        ("service.api", ["torch"]),
        ("service.text", ["torch", "fastapi", "starlette"]),
        ("service.settings", ["torch"]),
        ("service.engine.scheduler", ["torch", "fastapi", "starlette"]),
        ("service.engine.slots", ["torch", "fastapi", "starlette"]),
        ("service.engine.interface", ["torch", "fastapi", "starlette"]),
    ],
)
def test_light_module_does_not_load_heavy_ones(package, unwanted):
    assert import_in_fresh_process(package, unwanted) == []


def test_model_does_not_load_the_server():
    assert import_in_fresh_process("model", ["service", "fastapi", "starlette", "uvicorn"]) == []


def test_init_files_are_empty_but_for_a_docstring():
    # gossamer/ is what users import names from; that it stays light is tested with it.
    packages = [package for package in PACKAGES if package != "gossamer"]
    init_files = [path for package in packages for path in (ROOT / package).rglob("__init__.py")]
    assert init_files
    for path in init_files:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        if body and ast.get_docstring(ast.Module(body, [])) is not None:
            body = body[1:]
        assert not body, f"{path.relative_to(ROOT)} holds code"


def test_every_folder_of_code_is_a_package():
    # Without its __init__.py a folder of a package is left out of the wheel, and pytest takes tests/model for model.
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    missing = [str(path.relative_to(ROOT)) for path in sorted(folders) if not (path / "__init__.py").exists()]
    assert missing == []


def test_tracked_files_hold_no_trace_of_a_machine():
    found = []
    for path in list_tracked_files():
        content = path.read_bytes()
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), start=1):
            found += [
                f"{path.relative_to(ROOT)}:{number}: {kind}: {line.strip()[:120]}"
                for kind, pattern in MACHINE_TRACES.items()
                if pattern.search(line)
            ]
    assert found == []
