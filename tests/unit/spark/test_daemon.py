"""What Spark forks its Python workers from."""

from __future__ import annotations

from pathlib import Path

from mqspark.processes.daemon import without_zips


def test_only_the_archives_of_a_pyspark_that_is_installed_are_left_out(tmp_path: Path) -> None:
    """Another Spark's archive is the only one that has what its JAR files need."""
    site, other = tmp_path / "site-packages", tmp_path / "spark-home"
    doubled = [str(site / "pyspark/python/lib" / name) for name in ("pyspark.zip", "py4j-src.zip")]
    kept = [str(other / "python/lib/pyspark.zip"), str(tmp_path / "mine.zip"), str(site), ""]
    assert without_zips([*doubled, *kept]) == kept
    assert without_zips(doubled) == doubled
