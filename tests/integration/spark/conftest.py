"""The Spark session for all tests of this process, since its start takes as long as two audits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from mqspark.session import open_session


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    session = open_session("test", cores=2, brief=True)
    yield session
    session.stop()
