"""Runs lockquake's default suite on a lock from pytest, one test per story. In a test file beside this one:

    import locktest

    test_my_lock = locktest.stories("redis", "python3 my_lock.py")

The program lockquake must be on PATH, or named in LOCKQUAKE_BIN. Python's standard library and pytest only.
docs/locktest.md tells more.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest


class Failed(Exception):
    """Lockquake reported an error."""


def stories(lock, *clients, provider=None, quick=False, ttl=None, set=(), budget="0", seed=0, out=None):
    """A test of that lock, "BACKEND" or "BACKEND/LOCK", for each story. clients are the programs that take the place of
    lockquake's own, as --client has them, and names in them begin in the folder of the calling file. Other arguments
    are flags of `lockquake suite`; provider is else that of LOCKTEST_PROVIDER, and out a folder of pytest's."""
    suite = Suite(pathlib.Path(sys._getframe(1).f_code.co_filename).parent, out)
    common = ["--provider", provider or os.environ.get("LOCKTEST_PROVIDER", "auto")]
    options = [*repeated("--client", clients), *repeated("--set", set), *repeated("--ttl", [ttl] if ttl else [])]
    try:
        cells = suite.list(lock, *common, *options, *(["--quick"] if quick else []))
    except Failed as err:  # reported by a test, so that other tests are collected
        cells = [{"story": "lockquake", "error": str(err)}]
    suite.args = [*common, "--budget", budget, "--seed", str(seed)]

    @pytest.mark.parametrize("cell", [pytest.param(c, id=c["story"]) for c in cells])
    def test(cell, request, tmp_path_factory):
        if "error" in cell:
            pytest.fail(cell["error"], pytrace=False)
        if "scenario" not in cell:
            pytest.skip(cell.get("does_not_apply") or "not run: " + cell["not_run"])
        suite.begin(request, tmp_path_factory)
        suite.judge(suite.run(cell))
    return test


def repeated(flag, values):
    return [word for value in values for word in (flag, value)]


class Suite:
    """One lockquake process, which makes runs on request, on servers that it keeps between them."""

    def __init__(self, folder, out):
        self.folder, self.out, self.process, self.args, self.made, self.judged = folder, out, None, [], 0, 0

    def command(self, *args):
        program = os.environ.get("LOCKQUAKE_BIN") or shutil.which("lockquake")
        if not program:
            raise Failed("program lockquake not found: name it in LOCKQUAKE_BIN, or put it on PATH")
        return [os.path.abspath(program), *args]

    def list(self, *args):
        """Returns the stories of the lock, each with its scenario or the reason why it is not run."""
        done = self.call("suite", "--dry-run", "--format", "json", "--budget", "0", *args, cwd=self.folder)
        if done.returncode:
            raise Failed(done.stderr.strip())
        cells = json.loads(done.stdout)["cells"]
        if not any("scenario" in c for c in cells):
            raise Failed("no story can be run: " + "; ".join({c["not_run"] for c in cells if "not_run" in c}))
        return cells

    def call(self, *args, cwd=None):
        return subprocess.run(self.command(*args), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def begin(self, request, folders):
        """Starts the process before the first run. It ends with the module's tests."""
        if self.process is not None:
            return
        self.out = pathlib.Path(self.folder, self.out or folders.mktemp("lockquake"))
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            self.command("run", "-", "--format", "json", "--out", str(self.out), *self.args), cwd=self.folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True)
        request.node.getparent(pytest.Module).addfinalizer(self.end)

    def run(self, cell):
        """Runs the cell and returns the verdict."""
        file = self.out / "stories" / (cell["story"] + ".yaml")  # kept: the command that repeats the run names it
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(cell["scenario"])
        self.process.stdin.write(json.dumps({"scenario": str(file)}) + "\n")
        self.process.stdin.flush()
        verdict, answer = None, self.answer()
        while "runs" not in answer:
            verdict, answer = answer, self.answer()
        if answer.get("error") and answer["code"] in (3, 4):  # something is missing here, or the budget is spent
            pytest.skip("not run: " + answer["error"])
        if answer.get("error"):
            pytest.fail(answer["error"], pytrace=False)
        return verdict

    def answer(self):
        """Returns the next JSON object, which ends at the first line that makes it parse."""
        text = ""
        for line in self.process.stdout:
            text += line
            if line.rstrip().endswith("}"):
                try:
                    return json.loads(text)
                except ValueError:
                    pass
        self.said.seek(0)
        pytest.fail("lockquake ended before it had answered: " + self.said.read()[-2000:], pytrace=False)

    def judge(self, verdict):
        """Turns a verdict into the result of a test."""
        self.made += 1
        if verdict["verdict"] == "unknown":
            pytest.skip("unknown: " + "; ".join(verdict["reasons"]))
        self.judged += 1
        if verdict["verdict"] == "pass":
            return print(verdict["judged"]["grants"], "grants judged")
        why = "\n".join(verdict["reasons"])
        told = self.call("report", os.path.join(self.folder, verdict["run_dir"]), "--explain")
        pytest.fail(
            f"{why}\n\nWhat happened, and the report:\n{told.stdout}{told.stderr}\nagain: {verdict['replay']}",
            pytrace=False)

    def end(self):
        """Ends the process and its servers."""
        self.process.communicate()
        self.process = None
        if self.made and not self.judged:
            pytest.fail("no run could be judged; pytest -rs shows the reasons", pytrace=False)
