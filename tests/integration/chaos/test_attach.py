"""A cluster that the harness did not start is hurt by hooks, and judged by what is read back."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest
from clusters import serving_cluster

from mqchaos.cluster.cluster import Cluster
from mqchaos.mqchaos import main
from mqchaos.report.verdict import Report


def hooks_for(cluster: Cluster) -> str:
    """SIGKILL by the process id, and a restart by `mqcluster`."""
    text = 'broker = "broker-a"\n'
    for node in cluster.layout.nodes:
        pid = f"""grep -A 1 '"{node.name}": {{' {cluster.directory}/cluster.json"""
        restart = f"{sys.executable} -m mqchaos.mqcluster restart {node.name}"
        text += (
            f'[nodes.{node.node}]\naddress = "{node.address}"\n'
            f"faults.kill.inject = '''kill -9 $({pid} | grep -o '[0-9]*' | tail -n 1)'''\n"
            f"faults.kill.heal = '''{restart} --dir {cluster.directory}'''\n"
        )
    return text


def test_an_attached_cluster_is_hurt_and_read_back(tmp_path: Path) -> None:
    """A user's commands kill a leader and start it again; the report says what was judged.

    Nothing is lost. A program's history is judged as ours is.
    """
    with serving_cluster(tmp_path) as cluster:
        (tmp_path / "hooks.toml").write_text(hooks_for(cluster))
        words = ["attach", "-n", cluster.layout.namesrv_addr]
        words += ["--hooks", str(tmp_path / "hooks.toml")]
        words += ["--times", "1", "--rate", "300", "--settle", "1", "--dir", str(tmp_path / "run")]
        with pytest.raises(SystemExit) as ended:
            main(words)
        for name in cluster.names:
            pid = Cluster.load(cluster.directory).pid(name)
            if pid is not None:
                os.kill(pid, 9)

    report = msgspec.json.decode(
        (tmp_path / "run" / "report" / "report.json").read_bytes(), type=Report
    )
    assert not ended.value.code, report.findings
    assert report.counts.acknowledged > 500
    assert (report.counts.lost, report.exceptions) == (0, 0)
    assert [gap.fault for gap in report.gaps] == ["kill"]
    assert [each.fault for each in report.failovers] == ["kill"]
    assert "no replica's files were looked at" in report.notes[0]
    assert "not judged" in (tmp_path / "run" / "report" / "report.html").read_text()
