"""The result of an audit, in the one form in which it is written, read and shown.

``form``        the verdict as data: verdict.json
``page``        the look of a report: one HTML page that stands alone (pure)
``sections``    a verdict's parts of a page: properties, and each violation (pure)
``bytes_told``  bytes as people read them (pure)
``junit``       a verdict as JUnit XML, for CI (pure)
"""
