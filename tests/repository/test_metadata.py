"""What the project says about itself in several files is the same in all of them."""

import re
import tomllib
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from course_lib import doctor

CONDA_NAMES = {"torch": "pytorch"}


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def pins(root):
    lines = (root / "constraints.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(pin.name): pin.specifier for pin in requirements}


def test_conda_users_get_what_pip_users_get(root, project):
    listed = yaml.safe_load((root / "environment.yml").read_text())["dependencies"]
    conda = {
        requirement.name: requirement.specifier
        for requirement in (Requirement(line) for line in listed if isinstance(line, str))
    }
    assert conda.pop("python") == SpecifierSet(project["requires-python"])
    assert conda.pop("pip") == SpecifierSet()
    assert [line for line in listed if isinstance(line, dict)] == [{"pip": ["--editable ."]}]
    wanted = (Requirement(line) for line in project["dependencies"])
    assert conda == {CONDA_NAMES.get(r.name, r.name): r.specifier for r in wanted}


def test_the_doctor_knows_the_supported_versions(project):
    def versions(specifier):
        return {(part.operator, part.version) for part in SpecifierSet(specifier)}

    def bounds(low, high):
        return {(">=", f"{low[0]}.{low[1]}"), ("<", f"{high[0]}.{high[1]}")}

    torch = next(r for r in map(Requirement, project["dependencies"]) if r.name == "torch")
    assert versions(str(torch.specifier)) == bounds(*doctor.TORCHES)
    assert versions(project["requires-python"]) == bounds(*doctor.PYTHONS)


def test_make_looks_for_the_supported_pythons(root):
    makefile = (root / "Makefile").read_text()
    (low, high), (_, beyond) = (
        re.search(r"not \(3, (\d+)\) <= .* <= \(3, (\d+)\)", makefile).groups(),
        doctor.PYTHONS[1],
    )
    assert (3, int(low)) == doctor.PYTHONS[0]
    assert int(high) == beyond - 1
    named = re.search(r"for python in (.*); do", makefile).group(1).split()
    assert set(named) == {"python3", *(f"python3.{minor}" for minor in range(int(low), beyond))}


def test_all_that_the_tests_run_with_is_pinned(project, pins):
    """Follows the requirements of the installed packages, as pip did, from this project's."""
    extras = project["optional-dependencies"]
    todo = [*project["dependencies"], *extras["classroom"], *extras["dev"]]
    seen, unpinned = set(), set()
    while todo:
        requirement = Requirement(todo.pop())
        name = canonicalize_name(requirement.name)
        if name == "course-lib" or (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        if name not in pins:
            unpinned.add(name)
        for line in metadata.requires(name) or ():
            marker = Requirement(line).marker
            extras_asked = [{"extra": extra} for extra in requirement.extras or {""}]
            if marker is None or any(map(marker.evaluate, extras_asked)):
                todo.append(line)
    # What comes and goes with the platform: builds of torch for GPUs bring these.
    unpinned = {n for n in unpinned if not n.startswith(("nvidia-", "cuda-", "triton"))}
    assert len(seen) > 60
    assert not unpinned


def test_a_pin_is_one_version_within_the_declared_range(project, pins):
    for name, specifier in pins.items():
        assert [part.operator for part in specifier] == ["=="], name
    for line in project["dependencies"]:
        requirement = Requirement(line)
        (pin,) = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(Version(pin.version)), line


def test_the_files_that_pip_wrote_name_no_place(root):
    lines = (root / "constraints.txt").read_text().splitlines()
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.]+", line), line
